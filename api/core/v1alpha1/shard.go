package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UnschedulableAnnotation of a Shard keeps new workspaces away from it, whatever its value.
const UnschedulableAnnotation = "experimental.core.kcp.io/unschedulable"

// Shard is a set of server processes with a storage of their own. Shards are kept in the logical cluster root.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.metadata.labels['region']`,description="The region this shard is in"
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.baseURL`,description="Address for other shards and proxies"
// +kubebuilder:printcolumn:name="External URL",type=string,JSONPath=`.spec.externalURL`,description="Address for users"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Shard struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ShardSpec `json:"spec,omitempty"`
	// +optional
	Status ShardStatus `json:"status,omitempty"`
}

// ShardSpec is how a shard is reached.
type ShardSpec struct {
	// BaseURL is where other shards and proxies reach the shard.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Format:=uri
	BaseURL string `json:"baseURL"`
	// ExternalURL is where users reach the shard. By default the BaseURL.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Format:=uri
	ExternalURL string `json:"externalURL,omitempty"`
	// VirtualWorkspaceURL is where the virtual workspaces of the shard are. By default the BaseURL.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Format:=uri
	VirtualWorkspaceURL string `json:"virtualWorkspaceURL,omitempty"`
}

// ShardStatus is the observed state of a shard.
type ShardStatus struct {
	// Capacity of the shard.
	//
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Conditions are processing states.
	//
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// ShardList is a list of Shards.
//
// +kubebuilder:object:root=true
type ShardList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Shard `json:"items"`
}
