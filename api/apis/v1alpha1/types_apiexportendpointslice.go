package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Types of the conditions of an APIExportEndpointSlice. Only older servers set EndpointURLsReady.
const (
	APIExportEndpointSliceExportValid       = "APIExportValid"
	APIExportEndpointSlicePartitionValid    = "PartitionValid"
	APIExportEndpointSliceEndpointURLsReady = "EndpointURLsReady"
)

// ReasonPartitionInvalidReference is the reason if PartitionValid is False. The reasons of APIExportValid are those of an APIBinding.
const ReasonPartitionInvalidReference = "PartitionInvalidReference"

// APIExportEndpointSlice lists the URLs where the provider of an APIExport accesses objects in the workspaces that bind it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Export",type=string,JSONPath=`.spec.export.name`
// +kubebuilder:printcolumn:name="Partition",type=string,JSONPath=`.spec.partition`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type APIExportEndpointSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec APIExportEndpointSliceSpec `json:"spec,omitempty"`
	// +optional
	Status APIExportEndpointSliceStatus `json:"status,omitempty"`
}

// APIExportEndpointSliceSpec is the desired state of a slice.
type APIExportEndpointSliceSpec struct {
	// Export whose endpoints the slice lists.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the export is immutable: delete the slice and create another"
	Export apisv1alpha2.ExportBindingReference `json:"export"`
	// Partition is the name of a Partition in the same workspace. It limits the endpoints to the shards of the Partition.
	//
	// +optional
	Partition string `json:"partition,omitempty"`
}

// APIExportEndpointSliceStatus is the observed state of a slice.
type APIExportEndpointSliceStatus struct {
	// Conditions of the slice.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// Endpoints of the virtual workspace. The provider must watch all of them to see all objects.
	//
	// +optional
	// +listType=map
	// +listMapKey=url
	Endpoints []APIExportEndpoint `json:"endpoints,omitempty"`
	// ShardSelector is the label selector of the partition.
	//
	// +optional
	ShardSelector string `json:"shardSelector,omitempty"`
}

// APIExportEndpoint is an endpoint for the workspaces on some shards.
type APIExportEndpoint struct {
	// URL for Kubernetes clients.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	URL string `json:"url"`
	// Shards of the workspaces that the endpoint serves.
	//
	// +optional
	Shards *EndpointShards `json:"shards,omitempty"`
}

// EndpointShards selects all shards or shards by their labels.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.matchAll) && self.matchAll && has(self.selector))",message="matchAll and selector exclude each other"
type EndpointShards struct {
	// MatchAll selects all shards.
	//
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`
	// Selector selects Shards by their labels.
	//
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// APIExportEndpointSliceList is a list of APIExportEndpointSlices.
//
// +kubebuilder:object:root=true
type APIExportEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []APIExportEndpointSlice `json:"items"`
}
