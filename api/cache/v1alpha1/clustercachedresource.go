package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// ClusterCachedResourceFinalizer keeps a ClusterCachedResource until its objects are no longer published.
const ClusterCachedResourceFinalizer = "cache.kcp.io/clustercachedresource"

// Types of the conditions of a ClusterCachedResource, and their reasons if they are False, or Started.
const (
	ResourceValid      = "ResourceValid"
	ReplicationStarted = "ReplicationStarted"
	IdentityValid      = "IdentityValid"

	ReasonNoResources              = "NoResources"
	ReasonDeleting                 = "Deleting"
	ReasonResourceNotClusterScoped = "ResourceNotClusterScoped"
	ReasonInvalidReference         = "ClusterCachedResourceInvalidReference"
	ReasonNotFound                 = "ClusterCachedResourceNotFound"
	ReasonStarted                  = "Started"
)

// ClusterCachedResourcePhase is the phase of a ClusterCachedResource.
//
// +kubebuilder:validation:Enum=Scheduling;Initializing;Ready;Deleting;Deleted
type ClusterCachedResourcePhase string

// Phases of a ClusterCachedResource.
const (
	PhaseScheduling   ClusterCachedResourcePhase = "Scheduling"
	PhaseInitializing ClusterCachedResourcePhase = "Initializing"
	PhaseReady        ClusterCachedResourcePhase = "Ready"
	PhaseDeleting     ClusterCachedResourcePhase = "Deleting"
	PhaseDeleted      ClusterCachedResourcePhase = "Deleted"
)

// ClusterCachedResource publishes objects of a cluster-scoped resource in its workspace: consumers of an APIExport can read them. The
// workspace must define or bind the resource.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=`.spec.resource`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterCachedResource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec ClusterCachedResourceSpec `json:"spec"`
	// +optional
	Status ClusterCachedResourceStatus `json:"status,omitempty"`
}

// ClusterCachedResourceSpec selects the objects to publish.
type ClusterCachedResourceSpec struct {
	// Group of the resource. The empty string is the core group.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	Group string `json:"group,omitempty"`
	// Version of the published objects.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// Resource is the plural name of the resource.
	//
	// +required
	// +kubebuilder:validation:Pattern:=`^[a-z][-a-z0-9]*[a-z0-9]$`
	Resource string `json:"resource"`
	// Identity distinguishes these objects from others of the same resource. By default the server creates it.
	//
	// +optional
	Identity *apisv1alpha2.Identity `json:"identity,omitempty"`
	// LabelSelector selects the objects to publish. Defaults to all objects.
	//
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// ClusterCachedResourceStatus is the observed state of a ClusterCachedResource.
type ClusterCachedResourceStatus struct {
	// IdentityHash is the hash of the identity. Immutable.
	//
	// +optional
	IdentityHash string `json:"identityHash,omitempty"`
	// ResourceCounts are the numbers of objects.
	//
	// +optional
	ResourceCounts *ResourceCounts `json:"resourceCounts,omitempty"`
	// Phase of the ClusterCachedResource.
	//
	// +optional
	// +kubebuilder:default:=Initializing
	Phase ClusterCachedResourcePhase `json:"phase,omitempty"`
	// Conditions of the ClusterCachedResource.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
}

// ResourceCounts are numbers of objects.
type ResourceCounts struct {
	// Cache is the number of published objects.
	//
	// +required
	Cache int `json:"cache"`
	// Local is the number of selected objects in the workspace.
	//
	// +required
	Local int `json:"local"`
}

// ClusterCachedResourceList is a list of ClusterCachedResources.
//
// +kubebuilder:object:root=true
type ClusterCachedResourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []ClusterCachedResource `json:"items"`
}
