package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LogicalClusterName is the name of the LogicalCluster object in each logical cluster.
const LogicalClusterName = "cluster"

// ClusterAnnotation of an object is the name of its logical cluster. The server sets it, and clients can neither change nor remove it.
const ClusterAnnotation = "kcp.io/cluster"

// Annotations and labels of a LogicalCluster.
const (
	// PathAnnotation is the canonical path of the workspace, for example root:org:team.
	PathAnnotation = "kcp.io/path"
	// InactiveAnnotation with the value "true" disables a Ready logical cluster.
	InactiveAnnotation = "core.kcp.io/inactive"
	// MaxTotalObjectsAnnotation overrides the limit of the shard for the number of objects in the logical cluster. Zero or less
	// means no limit.
	MaxTotalObjectsAnnotation = "core.kcp.io/max-total-objects"
	// RequiredGroupsAnnotation restricts access to members of groups: "a,b;c" means (a and b) or c.
	RequiredGroupsAnnotation = "authorization.kcp.io/required-groups"
	// PhaseLabel is a copy of status.phase for label selectors.
	PhaseLabel = "tenancy.kcp.io/phase"
	// DeletionFinalizer keeps a LogicalCluster until everything in its cluster is deleted.
	DeletionFinalizer = "core.kcp.io/logicalcluster-deletion"
	// TerminatorsFinalizer keeps a LogicalCluster while status.terminators is not empty.
	TerminatorsFinalizer = "kcp.io/has-terminators"
)

// LogicalClusterPhase is the phase of a logical cluster.
// +kubebuilder:validation:Enum=Scheduling;Initializing;Ready;Unavailable;Inactive;Terminating;Deleting
type LogicalClusterPhase string

// Phases in the order of the lifecycle.
const (
	LogicalClusterPhaseScheduling   LogicalClusterPhase = "Scheduling"
	LogicalClusterPhaseInitializing LogicalClusterPhase = "Initializing"
	LogicalClusterPhaseReady        LogicalClusterPhase = "Ready"
	LogicalClusterPhaseUnavailable  LogicalClusterPhase = "Unavailable"
	LogicalClusterPhaseInactive     LogicalClusterPhase = "Inactive"
	LogicalClusterPhaseTerminating  LogicalClusterPhase = "Terminating"
	LogicalClusterPhaseDeleting     LogicalClusterPhase = "Deleting"
)

// LogicalClusterInitializer is an initializer that must be done before a logical cluster is Ready: "<path>:<type>" or "system:<name>".
// +kubebuilder:validation:Pattern:="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))|(system:.+)$"
type LogicalClusterInitializer string

// LogicalClusterTerminator is a terminator that must be done before a logical cluster is deleted. It has the format of an initializer.
// +kubebuilder:validation:Pattern:="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))|(system:.+)$"
type LogicalClusterTerminator string

// LogicalCluster describes the logical cluster that contains it. Its name is always "cluster".
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp,path=logicalclusters,singular=logicalcluster
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.status.URL`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="the name must be 'cluster'"
type LogicalCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default:={}
	// +optional
	Spec LogicalClusterSpec `json:"spec,omitempty"`
	// +kubebuilder:default:={}
	// +optional
	Status LogicalClusterStatus `json:"status,omitempty"`
}

// LogicalClusterSpec is the desired state of a logical cluster.
type LogicalClusterSpec struct {
	// DirectlyDeletable allows users to delete this object. By default, users delete its owner instead.
	//
	// +optional
	// +kubebuilder:default:=false
	DirectlyDeletable bool `json:"directlyDeletable,omitempty"`
	// Owner of this logical cluster, usually a Workspace.
	//
	// +optional
	Owner *LogicalClusterOwner `json:"owner,omitempty"`
	// CreatedBy is the user who created this logical cluster. Immutable.
	//
	// +optional
	CreatedBy *UserInfo `json:"createdBy,omitempty"`
	// Initializers of this logical cluster, whether they are done or not. Immutable.
	//
	// +optional
	Initializers []LogicalClusterInitializer `json:"initializers,omitempty"`
	// Terminators of this logical cluster, whether they are done or not.
	//
	// +optional
	Terminators []LogicalClusterTerminator `json:"terminators,omitempty"`
}

// LogicalClusterOwner refers to an object in another logical cluster.
type LogicalClusterOwner struct {
	// APIVersion of the owner.
	//
	// +required
	// +kubebuilder:validation:Pattern:=`^([^/]+/)?[^/]+$`
	APIVersion string `json:"apiVersion"`
	// Resource is the plural name of the owner's resource, for example workspaces.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Resource string `json:"resource"`
	// Name of the owner.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Namespace of the owner. Empty if the owner is cluster-scoped.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Cluster is the name of the owner's logical cluster.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Cluster string `json:"cluster"`
	// UID of the owner.
	//
	// +required
	UID types.UID `json:"uid"`
}

// UserInfo is an authenticated user.
type UserInfo struct {
	// Username is unique among active users.
	//
	// +optional
	Username string `json:"username,omitempty"`
	// UID distinguishes users who have had the same name.
	//
	// +optional
	UID string `json:"uid,omitempty"`
	// Groups that the user is a member of.
	//
	// +optional
	Groups []string `json:"groups,omitempty"`
	// Extra attributes that the authenticator added.
	//
	// +optional
	Extra map[string]ExtraValue `json:"extra,omitempty"`
}

// ExtraValue is a list of values under one key.
type ExtraValue []string

// LogicalClusterStatus is the observed state of a logical cluster.
type LogicalClusterStatus struct {
	// URL of the logical cluster for Kubernetes clients.
	//
	// +optional
	URL string `json:"URL,omitempty"`
	// Phase of the logical cluster.
	//
	// +optional
	// +kubebuilder:default=Scheduling
	Phase LogicalClusterPhase `json:"phase,omitempty"`
	// Conditions of the logical cluster.
	//
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
	// Initializers that are not done yet. Each initializer removes its own entry.
	//
	// +optional
	Initializers []LogicalClusterInitializer `json:"initializers,omitempty"`
	// Terminators that are not done yet. Each terminator removes its own entry.
	//
	// +optional
	Terminators []LogicalClusterTerminator `json:"terminators,omitempty"`
}

// ConditionSeverity is the severity of a condition with status False: Error, Warning or Info.
type ConditionSeverity string

// Condition is one observation about an object. Severity is set only while Status is False.
type Condition struct {
	// Type of the condition, in CamelCase.
	//
	// +required
	Type string `json:"type"`
	// Status is True, False or Unknown.
	//
	// +required
	Status metav1.ConditionStatus `json:"status"`
	// Severity of a condition with status False.
	//
	// +optional
	Severity ConditionSeverity `json:"severity,omitempty"`
	// LastTransitionTime is the time of the last change of the status.
	//
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// Reason is a machine-readable cause, in CamelCase.
	//
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message for people: the state, its cause and the next step.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// LogicalClusterList is a list of LogicalCluster objects.
//
// +kubebuilder:object:root=true
type LogicalClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LogicalCluster `json:"items"`
}
