package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// RunningFinalizer keeps a LogicalClusterMigration that is deleted until it is canceled or has ended.
const RunningFinalizer = "migration.kcp.io/running"

// Conditions of a LogicalClusterMigration, and their reasons.
const (
	// OriginReady is False while the shard that holds the logical cluster does not accept the migration.
	OriginReady                          = "OriginReady"
	ReasonRefused                        = "Refused"
	ReasonLogicalClusterAlreadyMigrating = "LogicalClusterAlreadyMigrating"
	// DataCopied is True when the destination has all objects, and False while the copy fails.
	DataCopied       = "DataCopied"
	ReasonCopyFailed = "CopyFailed"
	// OriginCleaned is True when the origin has no object of the logical cluster.
	OriginCleaned       = "OriginCleaned"
	ReasonCleanupFailed = "CleanupFailed"
	// Completed is True when the destination serves the logical cluster and the origin is cleaned. It is False with the reason Canceled or
	// Failed after a migration that did not move it, and with StepFailed while a step is retried.
	Completed        = "Completed"
	ReasonCanceled   = "Canceled"
	ReasonFailed     = "Failed"
	ReasonStepFailed = "StepFailed"
)

// LogicalClusterMigrationPhase is how far a migration is.
//
// +kubebuilder:validation:Enum=Preparing;Migrating;OriginCleanup;DestinationFinalize;Completed;Failed
type LogicalClusterMigrationPhase string

// Phases of a migration.
const (
	// PhasePreparing means that the origin is not found yet, or has not accepted.
	PhasePreparing LogicalClusterMigrationPhase = "Preparing"
	// PhaseMigrating means that the destination copies the objects. The origin serves the logical cluster until almost all are copied.
	PhaseMigrating LogicalClusterMigrationPhase = "Migrating"
	// PhaseDestinationFinalize means that the destination holds the logical cluster, and is about to serve it.
	PhaseDestinationFinalize LogicalClusterMigrationPhase = "DestinationFinalize"
	// PhaseOriginCleanup means that the destination serves the logical cluster, and the origin deletes its objects.
	PhaseOriginCleanup LogicalClusterMigrationPhase = "OriginCleanup"
	PhaseCompleted     LogicalClusterMigrationPhase = "Completed"
	// PhaseFailed means that the logical cluster is where it was: the condition Completed says why.
	PhaseFailed LogicalClusterMigrationPhase = "Failed"
)

// IsFinal reports whether a migration has ended.
func (p LogicalClusterMigrationPhase) IsFinal() bool { return p == PhaseCompleted || p == PhaseFailed }

// LogicalClusterMigration moves a logical cluster to another shard while it is in use. Only the workspace root serves migrations. To
// cancel a migration, delete it: until it is committed, the logical cluster stays where it is.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Logical Cluster",type=string,JSONPath=`.spec.logicalCluster`
// +kubebuilder:printcolumn:name="Origin",type=string,JSONPath=`.status.originShard`
// +kubebuilder:printcolumn:name="Destination",type=string,JSONPath=`.spec.destinationShard`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Entries",type=integer,JSONPath=`.status.entriesCopied`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LogicalClusterMigration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec LogicalClusterMigrationSpec `json:"spec"`
	// +optional
	// +kubebuilder:default={phase: Preparing}
	Status LogicalClusterMigrationStatus `json:"status,omitempty"`
}

// LogicalClusterMigrationSpec is what moves, and where to.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="is immutable: delete the migration, and create another one"
// +kubebuilder:validation:XValidation:rule="self.logicalCluster != 'root'",message="the logical cluster root does not move"
// +kubebuilder:validation:XValidation:rule="!self.logicalCluster.startsWith('system:')",message="logical clusters of the system stay"
type LogicalClusterMigrationSpec struct {
	// LogicalCluster is the name of the logical cluster: spec.cluster of its Workspace.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=63
	LogicalCluster string `json:"logicalCluster"`
	// DestinationShard is the name of the shard that gets the logical cluster.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:MaxLength:=253
	DestinationShard string `json:"destinationShard"`
}

// LogicalClusterMigrationStatus is the state of a migration. The destination reports it.
type LogicalClusterMigrationStatus struct {
	// Phase is how far the migration is.
	//
	// +optional
	// +kubebuilder:default=Preparing
	Phase LogicalClusterMigrationPhase `json:"phase,omitempty"`
	// OriginShard is the shard that held the logical cluster when the migration began.
	//
	// +optional
	OriginShard string `json:"originShard,omitempty"`
	// Epoch is the epoch of the placement after the migration.
	//
	// +optional
	Epoch int64 `json:"epoch,omitempty"`
	// EntriesCopied is the number of objects, and of later changes of objects, that the destination has copied.
	//
	// +optional
	EntriesCopied int64 `json:"entriesCopied,omitempty"`
	// BytesCopied is the size of these objects.
	//
	// +optional
	BytesCopied int64 `json:"bytesCopied,omitempty"`
	// Conditions of the migration.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
}

// LogicalClusterMigrationList is a list of LogicalClusterMigrations.
//
// +kubebuilder:object:root=true
type LogicalClusterMigrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []LogicalClusterMigration `json:"items"`
}
