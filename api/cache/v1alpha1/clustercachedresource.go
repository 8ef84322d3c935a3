package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// ClusterCachedResourceFinalizer holds a ClusterCachedResource until nobody is shown its objects any more.
const ClusterCachedResourceFinalizer = "cache.kcp.io/clustercachedresource"

// Types of the conditions of a ClusterCachedResource, and their reasons when they are False, or Started.
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

// ClusterCachedResourcePhase is how far a ClusterCachedResource is.
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

// ClusterCachedResource makes the objects of a cluster scoped resource of its workspace readable elsewhere, where an
// APIExport shows them. The workspace has to define or bind the resource.
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

// ClusterCachedResourceSpec is what objects are readable.
type ClusterCachedResourceSpec struct {
	// Group of the resource. Empty is the core group.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	Group string `json:"group,omitempty"`
	// Version in which the objects are read.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// Resource in the plural.
	//
	// +required
	// +kubebuilder:validation:Pattern:=`^[a-z][-a-z0-9]*[a-z0-9]$`
	Resource string `json:"resource"`
	// Identity tells these objects from others of the same resource. By default it is made by the system.
	//
	// +optional
	Identity *apisv1alpha2.Identity `json:"identity,omitempty"`
	// LabelSelector of the objects. Without it, all of them are readable.
	//
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// ClusterCachedResourceStatus is the observed state.
type ClusterCachedResourceStatus struct {
	// IdentityHash is the public part of the identity. It never changes.
	//
	// +optional
	IdentityHash string `json:"identityHash,omitempty"`
	// ResourceCounts are how many objects there are.
	//
	// +optional
	ResourceCounts *ResourceCounts `json:"resourceCounts,omitempty"`
	// Phase is how far the system is with it.
	//
	// +optional
	// +kubebuilder:default:=Initializing
	Phase ClusterCachedResourcePhase `json:"phase,omitempty"`
	// Conditions are processing states.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
}

// ResourceCounts are numbers of objects.
type ResourceCounts struct {
	// Cache is how many can be read elsewhere.
	//
	// +required
	Cache int `json:"cache"`
	// Local is how many the workspace has that are selected.
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
