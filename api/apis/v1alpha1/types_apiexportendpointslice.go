package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Types of the conditions of an APIExportEndpointSlice. EndpointURLsReady is only kept by older servers.
const (
	APIExportEndpointSliceExportValid       = "APIExportValid"
	APIExportEndpointSlicePartitionValid    = "PartitionValid"
	APIExportEndpointSliceEndpointURLsReady = "EndpointURLsReady"
)

// ReasonPartitionInvalidReference is why PartitionValid is False. The reasons of APIExportValid are those of an APIBinding.
const ReasonPartitionInvalidReference = "PartitionInvalidReference"

// APIExportEndpointSlice lists where the provider of an APIExport sees the objects of the workspaces that bind it.
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

// APIExportEndpointSliceSpec is what endpoints are listed.
type APIExportEndpointSliceSpec struct {
	// Export whose endpoints are listed.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the export is immutable: delete the slice and create another"
	Export apisv1alpha2.ExportBindingReference `json:"export"`
	// Partition is the name of a Partition in the same workspace, which limits the endpoints to some shards.
	//
	// +optional
	Partition string `json:"partition,omitempty"`
}

// APIExportEndpointSliceStatus has the endpoints.
type APIExportEndpointSliceStatus struct {
	// Conditions are processing states.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// Endpoints that the provider must watch to see every object.
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

// APIExportEndpoint is the address of a view of the workspaces of some shards.
type APIExportEndpoint struct {
	// URL for Kubernetes clients.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	URL string `json:"url"`
	// Shards whose workspaces are seen there.
	//
	// +optional
	Shards *EndpointShards `json:"shards,omitempty"`
}

// EndpointShards selects shards: all of them, or those with certain labels.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.matchAll) && self.matchAll && has(self.selector))",message="matchAll and selector exclude each other"
type EndpointShards struct {
	// MatchAll selects every shard.
	//
	// +optional
	MatchAll bool `json:"matchAll,omitempty"`
	// Selector of the labels of Shards.
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
