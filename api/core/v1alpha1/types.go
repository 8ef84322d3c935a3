package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LogicalClusterName is the name of the one LogicalCluster object that every logical cluster has.
const LogicalClusterName = "cluster"

// ClusterAnnotation holds the logical cluster of every object. Storage sets it; clients can neither forge nor remove it.
const ClusterAnnotation = "kcp.io/cluster"

// Annotations and labels of a LogicalCluster.
const (
	// PathAnnotation is the canonical path of the workspace, for example root:org:team.
	PathAnnotation = "kcp.io/path"
	// InactiveAnnotation set to "true" takes a Ready logical cluster out of service.
	InactiveAnnotation = "core.kcp.io/inactive"
	// MaxTotalObjectsAnnotation is the number of objects that the logical cluster may hold, in place of what the shard
	// grants; zero or less is any number.
	MaxTotalObjectsAnnotation = "core.kcp.io/max-total-objects"
	// RequiredGroupsAnnotation limits who may enter: "a,b;c" means (a and b) or c.
	RequiredGroupsAnnotation = "authorization.kcp.io/required-groups"
	// PhaseLabel repeats status.phase for selectors.
	PhaseLabel = "tenancy.kcp.io/phase"
	// DeletionFinalizer holds a LogicalCluster until everything in its cluster is deleted.
	DeletionFinalizer = "core.kcp.io/logicalcluster-deletion"
	// TerminatorsFinalizer holds a LogicalCluster while status.terminators is not empty.
	TerminatorsFinalizer = "kcp.io/has-terminators"
)

// LogicalClusterPhase is a step in the life of a logical cluster.
// +kubebuilder:validation:Enum=Scheduling;Initializing;Ready;Unavailable;Inactive;Terminating;Deleting
type LogicalClusterPhase string

// The phases, in the order of a life.
const (
	LogicalClusterPhaseScheduling   LogicalClusterPhase = "Scheduling"
	LogicalClusterPhaseInitializing LogicalClusterPhase = "Initializing"
	LogicalClusterPhaseReady        LogicalClusterPhase = "Ready"
	LogicalClusterPhaseUnavailable  LogicalClusterPhase = "Unavailable"
	LogicalClusterPhaseInactive     LogicalClusterPhase = "Inactive"
	LogicalClusterPhaseTerminating  LogicalClusterPhase = "Terminating"
	LogicalClusterPhaseDeleting     LogicalClusterPhase = "Deleting"
)

// LogicalClusterInitializer is a step that must be done before a logical cluster is Ready: "<path>:<type>" or "system:<name>".
// +kubebuilder:validation:Pattern:="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))|(system:.+)$"
type LogicalClusterInitializer string

// LogicalClusterTerminator is a step that must be done before a logical cluster is deleted, in the form of an initializer.
// +kubebuilder:validation:Pattern:="^([a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(:[a-z0-9][a-z0-9]([-a-z0-9]*[a-z0-9])?))|(system:.+)$"
type LogicalClusterTerminator string

// LogicalCluster describes the logical cluster that it lives in. Its name is always "cluster".
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
	// DirectlyDeletable allows users to delete this object itself. By default its owner is deleted instead.
	//
	// +optional
	// +kubebuilder:default:=false
	DirectlyDeletable bool `json:"directlyDeletable,omitempty"`
	// Owner is what this logical cluster belongs to, normally a Workspace.
	//
	// +optional
	Owner *LogicalClusterOwner `json:"owner,omitempty"`
	// CreatedBy is the identity that asked for this logical cluster. Immutable.
	//
	// +optional
	CreatedBy *UserInfo `json:"createdBy,omitempty"`
	// Initializers are all steps of initialization, done or not. Immutable.
	//
	// +optional
	Initializers []LogicalClusterInitializer `json:"initializers,omitempty"`
	// Terminators are all steps of termination, done or not.
	//
	// +optional
	Terminators []LogicalClusterTerminator `json:"terminators,omitempty"`
}

// LogicalClusterOwner refers to an object in another logical cluster.
type LogicalClusterOwner struct {
	// APIVersion is the group and version of the owner.
	//
	// +required
	// +kubebuilder:validation:Pattern:=`^([^/]+/)?[^/]+$`
	APIVersion string `json:"apiVersion"`
	// Resource is the plural name of the owner's type, for example workspaces.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Resource string `json:"resource"`
	// Name of the owner.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Namespace of the owner, empty for a cluster scoped one.
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

// UserInfo is an authenticated identity.
type UserInfo struct {
	// Username is unique among the active users.
	//
	// +optional
	Username string `json:"username,omitempty"`
	// UID tells users of the same name apart over time.
	//
	// +optional
	UID string `json:"uid,omitempty"`
	// Groups that the user is a member of.
	//
	// +optional
	Groups []string `json:"groups,omitempty"`
	// Extra is what the authenticator added.
	//
	// +optional
	Extra map[string]ExtraValue `json:"extra,omitempty"`
}

// ExtraValue is a list of values under one key.
type ExtraValue []string

// LogicalClusterStatus is the observed state of a logical cluster.
type LogicalClusterStatus struct {
	// URL is the address of the logical cluster for Kubernetes clients.
	//
	// +optional
	URL string `json:"URL,omitempty"`
	// Phase of the logical cluster.
	//
	// +optional
	// +kubebuilder:default=Scheduling
	Phase LogicalClusterPhase `json:"phase,omitempty"`
	// Conditions are processing states.
	//
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
	// Initializers that are left. Whoever finishes one removes it.
	//
	// +optional
	Initializers []LogicalClusterInitializer `json:"initializers,omitempty"`
	// Terminators that are left. Whoever finishes one removes it.
	//
	// +optional
	Terminators []LogicalClusterTerminator `json:"terminators,omitempty"`
}

// ConditionSeverity tells how bad a condition with status False is: Error, Warning or Info.
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
	// Severity of a condition whose status is False.
	//
	// +optional
	Severity ConditionSeverity `json:"severity,omitempty"`
	// LastTransitionTime is when the status changed last.
	//
	// +required
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// Reason is a machine readable cause, in CamelCase.
	//
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says what a person should know or do.
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
