package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodsEndpoint is the name of the Endpoint at which kcp reads the pods of workspaces.
const PodsEndpoint = "pods"

// Endpoint is where kcp reads objects of workspaces that are not stored. The APIExport of the fleet refers to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.endpoints[*].url`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Endpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Status EndpointStatus `json:"status,omitempty"`
}

// EndpointStatus has the URLs of an Endpoint.
type EndpointStatus struct {
	// Endpoints has one URL, for all shards.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=1
	Endpoints []EndpointURL `json:"endpoints,omitempty"`
}

// EndpointURL is a URL of the controller of the fleet.
type EndpointURL struct {
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=2048
	URL string `json:"url"`

	// Verbs are what users may do at the URL besides reading.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=1
	// +kubebuilder:validation:items:Enum:=delete
	Verbs []string `json:"verbs,omitempty"`
}

// EndpointList is a list of Endpoints.
//
// +kubebuilder:object:root=true
type EndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Endpoint `json:"items"`
}
