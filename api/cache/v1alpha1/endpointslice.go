package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Types of the conditions of a ClusterCachedResourceEndpointSlice beside ResourceValid, with the reasons that are their own.
const (
	APIExportValid                  = "APIExportValid"
	ReasonAPIExportInvalidReference = "APIExportInvalidReference"

	PartitionValid                  = "PartitionValid"
	ReasonPartitionInvalidReference = "PartitionInvalidReference"
)

// ClusterCachedResourceEndpointSlice lists where the objects of a ClusterCachedResource are read by those who bind an APIExport.
// The export names it as the virtual storage of the resource.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="ClusterCachedResource",type=string,JSONPath=`.spec.clusterCachedResource.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterCachedResourceEndpointSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ClusterCachedResourceEndpointSliceSpec `json:"spec,omitempty"`
	// +optional
	Status ClusterCachedResourceEndpointSliceStatus `json:"status,omitempty"`
}

// ClusterCachedResourceEndpointSliceSpec is what endpoints are listed.
type ClusterCachedResourceEndpointSliceSpec struct {
	// ClusterCachedResource whose objects are read.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the ClusterCachedResource is immutable: delete the slice and create another"
	ClusterCachedResource ClusterCachedResourceReference `json:"clusterCachedResource"`
	// Export through which they are read. It has to be in the workspace of the slice.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the export is immutable: delete the slice and create another"
	Export apisv1alpha2.ExportBindingReference `json:"export"`
	// Partition is the name of a Partition in the same workspace, which limits the endpoints to some shards.
	//
	// +optional
	Partition string `json:"partition,omitempty"`
}

// ClusterCachedResourceReference names a ClusterCachedResource.
type ClusterCachedResourceReference struct {
	// Path of its workspace. Empty is the workspace of the slice.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Path string `json:"path,omitempty"`
	// Name of the ClusterCachedResource.
	//
	// +required
	Name string `json:"name"`
}

// ClusterCachedResourceEndpointSliceStatus has the endpoints.
type ClusterCachedResourceEndpointSliceStatus struct {
	// Conditions are processing states.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// Endpoints are where the objects are read, one for each shard with workspaces that bind the export.
	//
	// +optional
	// +listType=map
	// +listMapKey=url
	Endpoints []apisv1alpha1.APIExportEndpoint `json:"endpoints,omitempty"`
	// ShardSelector is the label selector of the partition.
	//
	// +optional
	ShardSelector string `json:"shardSelector,omitempty"`
}

// ClusterCachedResourceEndpointSliceList is a list of ClusterCachedResourceEndpointSlices.
//
// +kubebuilder:object:root=true
type ClusterCachedResourceEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []ClusterCachedResourceEndpointSlice `json:"items"`
}
