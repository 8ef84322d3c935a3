package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Types of the conditions of a ClusterCachedResourceEndpointSlice in addition to ResourceValid, with their reasons.
const (
	APIExportValid                  = "APIExportValid"
	ReasonAPIExportInvalidReference = "APIExportInvalidReference"

	PartitionValid                  = "PartitionValid"
	ReasonPartitionInvalidReference = "PartitionInvalidReference"
)

// ClusterCachedResourceEndpointSlice lists the URLs where consumers of an APIExport read the objects of a ClusterCachedResource. The
// export refers to it as the virtual storage of a resource.
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

// ClusterCachedResourceEndpointSliceSpec is the desired state of a slice.
type ClusterCachedResourceEndpointSliceSpec struct {
	// ClusterCachedResource with the published objects.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the ClusterCachedResource is immutable: delete the slice and create another"
	ClusterCachedResource ClusterCachedResourceReference `json:"clusterCachedResource"`
	// Export that publishes the objects. It must be in the workspace of the slice.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the export is immutable: delete the slice and create another"
	Export apisv1alpha2.ExportBindingReference `json:"export"`
	// Partition is the name of a Partition in the same workspace. It limits the endpoints to the shards of the Partition.
	//
	// +optional
	Partition string `json:"partition,omitempty"`
}

// ClusterCachedResourceReference refers to a ClusterCachedResource.
type ClusterCachedResourceReference struct {
	// Path of its workspace. Defaults to the workspace of the slice.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Path string `json:"path,omitempty"`
	// Name of the ClusterCachedResource.
	//
	// +required
	Name string `json:"name"`
}

// ClusterCachedResourceEndpointSliceStatus is the observed state of a slice.
type ClusterCachedResourceEndpointSliceStatus struct {
	// Conditions of the slice.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// Endpoints of the published objects, one for each shard with workspaces that bind the export.
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
