package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdClusterStatus is what is known of an etcd.
type EtcdClusterStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase sums up the conditions.
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
	// ClusterID is the identity of the etcd, in hexadecimal. Once it is here no member starts a new cluster ever again: an
	// empty volume is that of a member to be replaced.
	//
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// RestoreGeneration counts how often the data was restored from a snapshot, or from a survivor.
	//
	// +optional
	RestoreGeneration int64 `json:"restoreGeneration,omitempty"`
	// DataDirectory is the directory of the volumes that members have their data in. Unset: data.
	//
	// +optional
	DataDirectory string `json:"dataDirectory,omitempty"`
	// Recovery is what became of the survivor that spec.restore names. It is written before the first step.
	//
	// +optional
	Recovery *EtcdRecoveryStatus `json:"recovery,omitempty"`
	// CurrentVersion is the version that every member runs; while they are upgraded, the one that they come from.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern:=`^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}$`
	CurrentVersion string `json:"currentVersion,omitempty"`
	// Leader is the name of the member that leads.
	//
	// +optional
	Leader string `json:"leader,omitempty"`
	// ReadyMembers is how many members of how many are ready, as 3/3.
	//
	// +optional
	ReadyMembers string `json:"readyMembers,omitempty"`
	// Members as they were last seen.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []EtcdMemberStatus `json:"members,omitempty"`
	// Endpoints that clients use: the URL of the Service of the members that are ready. It is there once the cluster has
	// begun, and stays when members come and go, so that clients need not be told; and it does not lead them to a member
	// that still learns, which would refuse them.
	//
	// +optional
	// +listType=atomic
	Endpoints []string `json:"endpoints,omitempty"`
	// ClientSecretName names the Secret with which clients are accepted: tls.crt, tls.key and ca.crt.
	//
	// +optional
	ClientSecretName string `json:"clientSecretName,omitempty"`
	// LastDefragmentation is when space was last given back by schedule.
	//
	// +optional
	LastDefragmentation *metav1.Time `json:"lastDefragmentation,omitempty"`
	// Repairs are the members that were lately replaced. None of them is replaced again so soon.
	//
	// +optional
	// +listType=map
	// +listMapKey=member
	Repairs []EtcdRepairStatus `json:"repairs,omitempty"`
	// Operation is the change to the members that is under way. It is written before the first step, and read by an
	// operator that starts again in the middle.
	//
	// +optional
	Operation *EtcdOperationStatus `json:"operation,omitempty"`
}

// EtcdRepairStatus is a member that was replaced, because its volume was lost, its data corrupt, or its process ended again and again.
type EtcdRepairStatus struct {
	// Member is its name.
	Member string `json:"member"`
	// At is when that was done, or begun.
	At metav1.Time `json:"at"`
}

// EtcdMemberStatus is what is known of a member.
type EtcdMemberStatus struct {
	// Name of the member, which is that of its pod.
	Name string `json:"name"`
	// ID of the member, in hexadecimal.
	//
	// +optional
	ID string `json:"id,omitempty"`
	// IsLearner says whether the member only follows, and does not vote yet.
	//
	// +optional
	IsLearner bool `json:"isLearner,omitempty"`
	// IsLeader says whether the member leads.
	//
	// +optional
	IsLeader bool `json:"isLeader,omitempty"`
	// Version that the member runs.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// DBSize is how many bytes the member's database takes.
	//
	// +optional
	DBSize int64 `json:"dbSize,omitempty"`
	// DBSizeInUse is how many of them are not free space.
	//
	// +optional
	DBSizeInUse int64 `json:"dbSizeInUse,omitempty"`
	// RaftIndexLag is how many changes the member is behind its leader.
	//
	// +optional
	RaftIndexLag int64 `json:"raftIndexLag,omitempty"`
	// Ready says whether the member answers requests.
	//
	// +optional
	Ready bool `json:"ready,omitempty"`
}

// EtcdRecoveryState is how far the recovery of a cluster that has lost its majority is.
//
// +kubebuilder:validation:Enum=Refused;Copying;Starting;Done
type EtcdRecoveryState string

// The states.
const (
	// EtcdRecoveryRefused means that a majority of the members answered. It stays refused until the survivor is taken out of the spec.
	EtcdRecoveryRefused EtcdRecoveryState = "Refused"
	// EtcdRecoveryCopying means that no member runs, and data are made of the survivor's. Until then nothing is given up.
	EtcdRecoveryCopying EtcdRecoveryState = "Copying"
	// EtcdRecoveryStarting means that members run with the new data.
	EtcdRecoveryStarting EtcdRecoveryState = "Starting"
	// EtcdRecoveryDone means that the cluster has begun anew.
	EtcdRecoveryDone EtcdRecoveryState = "Done"
)

// EtcdRecoveryStatus is a recovery from a lost majority.
type EtcdRecoveryStatus struct {
	EtcdSurvivorSpec `json:",inline"`

	// State of the recovery.
	State EtcdRecoveryState `json:"state"`
	// Directory of the volumes that the members begin anew in.
	//
	// +optional
	Directory string `json:"directory,omitempty"`
}

// EtcdOperationType is a kind of change to the members.
//
// +kubebuilder:validation:Enum=Add;Remove;Replace;Upgrade;Defragment;GrowVolume;Restore
type EtcdOperationType string

// The kinds of changes.
const (
	EtcdAdd        EtcdOperationType = "Add"
	EtcdRemove     EtcdOperationType = "Remove"
	EtcdReplace    EtcdOperationType = "Replace"
	EtcdUpgrade    EtcdOperationType = "Upgrade"
	EtcdDefragment EtcdOperationType = "Defragment"
	EtcdGrowVolume EtcdOperationType = "GrowVolume"
	EtcdRestore    EtcdOperationType = "Restore"
)

// EtcdOperationStatus is a change to one member, or to all.
type EtcdOperationStatus struct {
	// Type of the change.
	Type EtcdOperationType `json:"type"`
	// Member that changes. Unset: all.
	//
	// +optional
	Member string `json:"member,omitempty"`
	// MemberID of the member when the change began, in hexadecimal.
	//
	// +optional
	MemberID string `json:"memberID,omitempty"`
	// StartedAt is when the change began.
	StartedAt metav1.Time `json:"startedAt"`
}
