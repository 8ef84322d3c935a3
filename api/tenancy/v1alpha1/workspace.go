package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Annotations and finalizers of a Workspace.
const (
	// OwnerAnnotation holds the identity of the creator, as a JSON UserInfo of authentication.k8s.io/v1.
	OwnerAnnotation = "experimental.tenancy.kcp.io/owner"
	// MountAnnotation holds what is spec.mount now, as the JSON {"spec": {"ref": {…}}}. It counts when a workspace is created.
	// Deprecated: set spec.mount.
	MountAnnotation = "experimental.tenancy.kcp.io/mount"
	// ShardAnnotation names the shard that hosts the logical cluster.
	ShardAnnotation = "core.kcp.io/shard"
	// ShardHashAnnotation is a hash of the shard's name. Deprecated: read ShardAnnotation.
	ShardHashAnnotation = "internal.tenancy.kcp.io/shard"
	// ClusterAnnotation names the logical cluster that is being made for the workspace.
	ClusterAnnotation = "internal.tenancy.kcp.io/cluster"
	// TypeAnnotation of a LogicalCluster is the type of its workspace, as <path>:<name>.
	TypeAnnotation = "internal.tenancy.kcp.io/type"
	// TypeClusterAnnotation of a LogicalCluster is the logical cluster that the type was in when the workspace was made. There is
	// none for types in root, which is always the same.
	TypeClusterAnnotation = "internal.tenancy.kcp.io/type-cluster"
	// LogicalClusterFinalizer holds a Workspace until its logical cluster is gone.
	LogicalClusterFinalizer = "core.kcp.io/logicalcluster"
)

// Types of the conditions of a Workspace.
const (
	WorkspaceScheduled      = "WorkspaceScheduled"
	WorkspaceInitialized    = "WorkspaceInitialized"
	WorkspaceContentDeleted = "WorkspaceContentDeleted"
	WorkspaceMountReady     = "WorkspaceMountReady"
)

// Reasons of conditions that are False.
const (
	ReasonUnschedulable        = "Unschedulable"
	ReasonUnknown              = "Unknown"
	ReasonInitializerExists    = "InitializerExists"
	ReasonWorkspaceDisappeared = "WorkspaceDisappeared"
	ReasonMountObjectNotFound  = "MountObjectNotFound"
	ReasonMountObjectNotReady  = "MountObjectNotReady"
)

// Workspace is a logical cluster at a place in the tree: its parent is the logical cluster that it lives in.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp,shortName=ws
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type.name`,description="Type of the workspace"
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.metadata.labels['region']`,description="The region this workspace is in"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="The current phase (e.g. Scheduling, Initializing, Ready)"
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.URL`,description="URL to access the workspace"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Workspace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default:={}
	// +required
	Spec WorkspaceSpec `json:"spec"`
	// +kubebuilder:default:={}
	// +optional
	Status WorkspaceStatus `json:"status,omitempty"`
}

// WorkspaceSpec is the desired state of a workspace.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.URL) || has(self.URL)",message="URL cannot be unset"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cluster) || has(self.cluster)",message="cluster cannot be unset"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.mount) == has(self.mount)",message="mount is immutable"
type WorkspaceSpec struct {
	// Type decides what the workspace starts with and what may be below it. By default it is the one that the type of the
	// parent names for its children.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",message="name is immutable"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.path) || (has(self.path) && self.path == oldSelf.path)",message="path is immutable"
	Type *WorkspaceTypeReference `json:"type,omitempty"`
	// Location constrains where the workspace is scheduled.
	//
	// +optional
	Location *WorkspaceLocation `json:"location,omitempty"`
	// Cluster is the name of the logical cluster. Set by the system.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cluster is immutable"
	Cluster string `json:"cluster,omitempty"`
	// URL is the address of the workspace for Kubernetes clients. Set by the system.
	//
	// +optional
	URL string `json:"URL,omitempty"`
	// Mount makes the workspace a view of what another object provides, instead of a logical cluster.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="mount is immutable"
	Mount *Mount `json:"mount,omitempty"`
}

// WorkspaceLocation constrains the shard of a workspace.
type WorkspaceLocation struct {
	// Selector of the labels of Shards.
	//
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Mount refers to the object that provides the URL of a workspace.
type Mount struct {
	// Reference to an object in the same logical cluster as the workspace, with status.URL and status.phase.
	//
	// +required
	Reference ObjectReference `json:"ref"`
}

// ObjectReference refers to an object in the same logical cluster.
type ObjectReference struct {
	// APIVersion of the object.
	//
	// +required
	APIVersion string `json:"apiVersion"`
	// Kind of the object.
	//
	// +required
	Kind string `json:"kind"`
	// Name of the object.
	//
	// +required
	Name string `json:"name"`
	// Namespace of the object, if it is in one.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// WorkspaceStatus is the observed state of a workspace.
type WorkspaceStatus struct {
	// Phase of the workspace.
	//
	// +optional
	// +kubebuilder:default=Scheduling
	Phase corev1alpha1.LogicalClusterPhase `json:"phase,omitempty"`
	// Conditions are processing states.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// Initializers that are left, as in the LogicalCluster.
	//
	// +optional
	Initializers []corev1alpha1.LogicalClusterInitializer `json:"initializers,omitempty"`
	// Terminators that are left, as in the LogicalCluster.
	//
	// +optional
	Terminators []corev1alpha1.LogicalClusterTerminator `json:"terminators,omitempty"`
}

// WorkspaceList is a list of Workspaces.
//
// +kubebuilder:object:root=true
type WorkspaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Workspace `json:"items"`
}
