package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdClusterStatus is the observed state of an etcd cluster.
type EtcdClusterStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase summarizes the conditions.
	//
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Conditions: Ready, Reconciling, Stalled, Available, Progressing, Degraded, QuorumLost, BackupHealthy,
	// CertificatesReady, CertificatesExpiring, VersionSkew, Alarm, RolloutHeld and Rotating.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ClusterID is the ID of the etcd cluster, in hexadecimal. Once it is set, no member ever bootstraps a new cluster: an
	// empty volume belongs to a member that must be replaced.
	//
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// RestoreGeneration counts how often the data was restored from a snapshot or from a surviving member.
	//
	// +optional
	RestoreGeneration int64 `json:"restoreGeneration,omitempty"`
	// DataDirectory is the directory in the volumes that holds the data of the members. Unset: data.
	//
	// +optional
	DataDirectory string `json:"dataDirectory,omitempty"`
	// Recovery is the state of the recovery from the member in spec.restore.survivor. It is written before the first step.
	//
	// +optional
	Recovery *EtcdRecoveryStatus `json:"recovery,omitempty"`
	// CurrentVersion is the version that every member runs; during an upgrade, the version before it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern:=`^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}$`
	CurrentVersion string `json:"currentVersion,omitempty"`
	// Leader is the name of the leader.
	//
	// +optional
	Leader string `json:"leader,omitempty"`
	// ReadyMembers is the number of ready members and of all members, such as 3/3.
	//
	// +optional
	ReadyMembers string `json:"readyMembers,omitempty"`
	// Members are the members as last observed.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []EtcdMemberStatus `json:"members,omitempty"`
	// Endpoints are the URLs for clients: that of the Service of the ready members. It is set once the cluster has started and does
	// not change when members are added or removed, so clients need no new configuration. The Service excludes learners, which refuse
	// clients.
	//
	// +optional
	// +listType=atomic
	Endpoints []string `json:"endpoints,omitempty"`
	// ClientSecretName is the name of the Secret with credentials for clients: tls.crt, tls.key and ca.crt.
	//
	// +optional
	ClientSecretName string `json:"clientSecretName,omitempty"`
	// LastDefragmentation is the time of the last scheduled defragmentation.
	//
	// +optional
	LastDefragmentation *metav1.Time `json:"lastDefragmentation,omitempty"`
	// Repairs are the members that were replaced recently. The operator waits before it replaces one of them again.
	//
	// +optional
	// +listType=map
	// +listMapKey=member
	Repairs []EtcdRepairStatus `json:"repairs,omitempty"`
	// Operation is the change to the members that is in progress. It is written before the first step, so that an operator that
	// restarts can continue.
	//
	// +optional
	Operation *EtcdOperationStatus `json:"operation,omitempty"`
}

// EtcdRepairStatus is a member that was replaced because its volume was lost, its data was corrupt, or its process kept crashing.
type EtcdRepairStatus struct {
	// Member is the name of the member.
	Member string `json:"member"`
	// At is when the replacement was done, or started.
	At metav1.Time `json:"at"`
}

// EtcdMemberStatus is the observed state of a member.
type EtcdMemberStatus struct {
	// Name of the member and of its pod.
	Name string `json:"name"`
	// ID of the member, in hexadecimal.
	//
	// +optional
	ID string `json:"id,omitempty"`
	// IsLearner is true while the member is a learner, which does not vote yet.
	//
	// +optional
	IsLearner bool `json:"isLearner,omitempty"`
	// IsLeader is true if the member is the leader.
	//
	// +optional
	IsLeader bool `json:"isLeader,omitempty"`
	// Version that the member runs.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// DBSize is the size of the member's database in bytes.
	//
	// +optional
	DBSize int64 `json:"dbSize,omitempty"`
	// DBSizeInUse is the size in bytes without free space.
	//
	// +optional
	DBSizeInUse int64 `json:"dbSizeInUse,omitempty"`
	// RaftIndexLag is the number of changes that the member is behind the leader.
	//
	// +optional
	RaftIndexLag int64 `json:"raftIndexLag,omitempty"`
	// Ready is true if the member answers requests.
	//
	// +optional
	Ready bool `json:"ready,omitempty"`
}

// EtcdRecoveryState is the progress of the recovery of a cluster that has lost quorum.
//
// +kubebuilder:validation:Enum=Refused;Copying;Starting;Done
type EtcdRecoveryState string

// The states.
const (
	// EtcdRecoveryRefused means that a majority of the members answered. It stays refused until the survivor is removed from the spec.
	EtcdRecoveryRefused EtcdRecoveryState = "Refused"
	// EtcdRecoveryCopying means that no member runs, and the data of the survivor is copied. Up to here, no data is lost.
	EtcdRecoveryCopying EtcdRecoveryState = "Copying"
	// EtcdRecoveryStarting means that members run with the new data.
	EtcdRecoveryStarting EtcdRecoveryState = "Starting"
	// EtcdRecoveryDone means that the recovered cluster runs.
	EtcdRecoveryDone EtcdRecoveryState = "Done"
)

// EtcdRecoveryStatus is a recovery from the loss of quorum.
type EtcdRecoveryStatus struct {
	EtcdSurvivorSpec `json:",inline"`

	// State of the recovery.
	State EtcdRecoveryState `json:"state"`
	// Directory in the volumes that holds the data of the recovered cluster.
	//
	// +optional
	Directory string `json:"directory,omitempty"`
}

// EtcdOperationType is a type of change to the members.
//
// +kubebuilder:validation:Enum=Add;Remove;Replace;Upgrade;Defragment;GrowVolume;Restore
type EtcdOperationType string

// The types of changes.
const (
	EtcdAdd        EtcdOperationType = "Add"
	EtcdRemove     EtcdOperationType = "Remove"
	EtcdReplace    EtcdOperationType = "Replace"
	EtcdUpgrade    EtcdOperationType = "Upgrade"
	EtcdDefragment EtcdOperationType = "Defragment"
	EtcdGrowVolume EtcdOperationType = "GrowVolume"
	EtcdRestore    EtcdOperationType = "Restore"
)

// EtcdOperationStatus is a change to one member or to all members.
type EtcdOperationStatus struct {
	// Type of the change.
	Type EtcdOperationType `json:"type"`
	// Member that changes. Unset: all members.
	//
	// +optional
	Member string `json:"member,omitempty"`
	// MemberID is the ID of the member when the change started, in hexadecimal.
	//
	// +optional
	MemberID string `json:"memberID,omitempty"`
	// StartedAt is when the change started.
	StartedAt metav1.Time `json:"startedAt"`
}
