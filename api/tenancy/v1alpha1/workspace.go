package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Annotations and finalizers of a Workspace. Those of its LogicalCluster say so.
const (
	// OwnerAnnotation holds the identity of the creator, as a JSON UserInfo of authentication.k8s.io/v1.
	OwnerAnnotation = "experimental.tenancy.kcp.io/owner"
	// MountAnnotation is the former form of spec.mount, as the JSON {"spec": {"ref": {…}}}. The server reads it when a workspace is created.
	// Deprecated: set spec.mount.
	MountAnnotation = "experimental.tenancy.kcp.io/mount"
	// ShardAnnotation is the name of the shard of the logical cluster.
	ShardAnnotation = "core.kcp.io/shard"
	// ShardHashAnnotation is a hash of the shard's name. Deprecated: read ShardAnnotation.
	ShardHashAnnotation = "internal.tenancy.kcp.io/shard"
	// ClusterAnnotation is the name of the logical cluster that is being created for the workspace.
	ClusterAnnotation = "internal.tenancy.kcp.io/cluster"
	// OwnerShardAnnotation of a LogicalCluster is the shard that was last seen to hold its Workspace, if that is another one.
	OwnerShardAnnotation = "internal.tenancy.kcp.io/owner-shard"
	// TypeAnnotation of a LogicalCluster is the type of its workspace, as <path>:<name>.
	TypeAnnotation = "internal.tenancy.kcp.io/type"
	// EpochAnnotation of a Workspace and of its LogicalCluster is how often the logical cluster was placed on a shard. It only rises; absent
	// means 1.
	EpochAnnotation = "internal.tenancy.kcp.io/epoch"
	// ClusterUIDAnnotation of a Workspace is the UID of the LogicalCluster. It is absent if that was created on the shard of the Workspace.
	ClusterUIDAnnotation = "internal.tenancy.kcp.io/cluster-uid"
	// AncestorsAnnotation of a LogicalCluster lists the logical clusters above it, from the outermost to the parent, separated by commas. It
	// is absent if the LogicalCluster was created on the shard of the parent.
	AncestorsAnnotation = "internal.tenancy.kcp.io/ancestors"
	// TypeClusterAnnotation of a LogicalCluster is the logical cluster of the type at the creation of the workspace. It is absent
	// for types in root.
	TypeClusterAnnotation = "internal.tenancy.kcp.io/type-cluster"
	// LogicalClusterFinalizer keeps a Workspace until its logical cluster is deleted.
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

// Workspace is a logical cluster with a name in the tree. The logical cluster that contains the Workspace is its parent.
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
	// Type defines the initial content of the workspace and the allowed types of its children. Defaults to the default child type
	// of the parent's type.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",message="name is immutable"
	// +kubebuilder:validation:XValidation:rule="!has(oldSelf.path) || (has(self.path) && self.path == oldSelf.path)",message="path is immutable"
	Type *WorkspaceTypeReference `json:"type,omitempty"`
	// Location constrains the shard of the workspace.
	//
	// +optional
	Location *WorkspaceLocation `json:"location,omitempty"`
	// Cluster is the name of the logical cluster. Set by the system.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cluster is immutable"
	Cluster string `json:"cluster,omitempty"`
	// URL of the workspace for Kubernetes clients. Set by the system.
	//
	// +optional
	URL string `json:"URL,omitempty"`
	// Mount makes the workspace a mount of the API server that another object refers to, instead of a logical cluster.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="mount is immutable"
	Mount *Mount `json:"mount,omitempty"`
}

// WorkspaceLocation constrains the shard of a workspace.
type WorkspaceLocation struct {
	// Selector selects Shards by their labels.
	//
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Mount refers to the object with the URL of the mounted API server.
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
	// Namespace of the object, if its kind is namespaced.
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
	// Conditions of the workspace.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
	// Initializers that are not done yet, as in the LogicalCluster.
	//
	// +optional
	Initializers []corev1alpha1.LogicalClusterInitializer `json:"initializers,omitempty"`
	// Terminators that are not done yet, as in the LogicalCluster.
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
