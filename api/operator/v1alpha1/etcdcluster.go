package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdCluster is an etcd that the operator makes, secures and keeps alive.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=kcp,shortName=etcd
// +kubebuilder:printcolumn:name="Members",type=string,JSONPath=`.status.readyMembers`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.currentVersion`
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.leader`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 45 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="the name of an EtcdCluster becomes part of names of pods and Services: at most 45 lower case letters, digits and dashes, beginning with a letter"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.version) || !has(self.status) || !has(self.status.currentVersion) || (int(self.spec.version.split('.')[0]) == int(self.status.currentVersion.split('.')[0]) && int(self.spec.version.split('.')[1]) >= int(self.status.currentVersion.split('.')[1]) && int(self.spec.version.split('.')[1]) <= int(self.status.currentVersion.split('.')[1]) + 1)",messageExpression="'the cluster runs ' + self.status.currentVersion + ': etcd can be upgraded to the next minor version, not past it and not back; restore a snapshot into a new cluster for anything else'",fieldPath=".spec.version"
type EtcdCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec EtcdClusterSpec `json:"spec,omitempty"`
	// +optional
	Status EtcdClusterStatus `json:"status,omitempty"`
}

// EtcdClusterSpec is what an etcd should be.
//
// +kubebuilder:validation:XValidation:rule="has(self.clusterDomain) == has(oldSelf.clusterDomain) && (!has(self.clusterDomain) || self.clusterDomain == oldSelf.clusterDomain)",message="the members know each other by names in this domain: make a new cluster from a snapshot to change it",fieldPath=".clusterDomain"
// +kubebuilder:validation:XValidation:rule="!has(self.version) || !has(oldSelf.version) || (int(self.version.split('.')[0]) == int(oldSelf.version.split('.')[0]) && int(self.version.split('.')[1]) <= int(oldSelf.version.split('.')[1]) + 1)",message="etcd is upgraded one minor version at a time: go to the next one, wait until the cluster is Ready, and go on",fieldPath=".version"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.storage) || has(self.storage)",message="the storage cannot be taken away: only its size can grow",fieldPath=".storage"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'Snapshot' || has(self.lastSnapshot)",message="lastSnapshot says where the snapshot goes that the deletionPolicy Snapshot asks for",fieldPath=".lastSnapshot"
type EtcdClusterSpec struct {
	// Replicas is the number of members. Unset: 3.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self in [1, 3, 5]",message="an etcd has 1, 3 or 5 members: one more than an odd number survives no more failures"
	Replicas *int32 `json:"replicas,omitempty"`
	// Version of etcd, as x.y.z. Unset: the one that the operator knew when the cluster was made.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern:=`^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}$`
	Version string `json:"version,omitempty"`
	// ClusterDomain is the domain of the host cluster. Unset: that of the owner, or else cluster.local.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// Image of the members. Unset: that of the version.
	//
	// +optional
	Image *ImageSpec `json:"image,omitempty"`
	// Storage of each member.
	//
	// +optional
	Storage *EtcdStorageSpec `json:"storage,omitempty"`
	// QuotaBackendBytes is how large the database may become before etcd takes no more writes. Unset: 2 GiB. More than
	// 8 GiB works, and makes members slow to start and to replace.
	//
	// +optional
	// +kubebuilder:validation:Minimum=16777216
	QuotaBackendBytes *int64 `json:"quotaBackendBytes,omitempty"`
	// Compaction of old revisions.
	//
	// +optional
	Compaction *EtcdCompactionSpec `json:"compaction,omitempty"`
	// SnapshotCount is after how many changes a member writes out its state. Unset: 10000.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	SnapshotCount *int64 `json:"snapshotCount,omitempty"`
	// Resources of each member.
	//
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodTemplate changes the pods of the members.
	//
	// +optional
	PodTemplate *PodTemplateSpec `json:"podTemplate,omitempty"`
	// TLS between members, and between them and their clients. It cannot be turned off.
	//
	// +optional
	TLS *EtcdClusterTLSSpec `json:"tls,omitempty"`
	// PDB is about how many members may be evicted at once: one, if there are three or more.
	//
	// +optional
	PDB *PDBSpec `json:"pdb,omitempty"`
	// Monitoring of the members.
	//
	// +optional
	Monitoring *MonitoringSpec `json:"monitoring,omitempty"`
	// Defrag gives back the space that compaction frees.
	//
	// +optional
	Defrag *EtcdDefragSpec `json:"defrag,omitempty"`
	// Maintenance keeps the operator's hands off.
	//
	// +optional
	Maintenance *EtcdMaintenanceSpec `json:"maintenance,omitempty"`
	// Restore is where the data come from: a snapshot that a cluster begins with, or a member that survived the loss of the majority.
	//
	// +optional
	Restore *EtcdRestoreSpec `json:"restore,omitempty"`
	// DeletionPolicy says what happens to the data when the EtcdCluster is deleted. Unset: Retain.
	//
	// +optional
	// +kubebuilder:validation:Enum=Retain;Snapshot;Delete
	DeletionPolicy EtcdDeletionPolicy `json:"deletionPolicy,omitempty"`
	// LastSnapshot is where the snapshot goes that the DeletionPolicy Snapshot asks for.
	//
	// +optional
	LastSnapshot *EtcdStoreSpec `json:"lastSnapshot,omitempty"`
}

// EtcdRestoreSpec names a snapshot, by its store and key, or a survivor.
//
// +kubebuilder:validation:XValidation:rule="has(self.survivor) ? !has(self.store) && !has(self.key) : has(self.store) && has(self.key)",message="the data come from one source: set either store and key, for a snapshot, or survivor, for a member that is left of this cluster"
type EtcdRestoreSpec struct {
	// Store that has the snapshot. A snapshot is looked at before the cluster begins, and never again.
	//
	// +optional
	Store *EtcdStoreSpec `json:"store,omitempty"`
	// Key by which the store has it: status.snapshot.key of the EtcdBackup, as it is. Nothing is put before it but the prefix of a bucket.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains('..') && !self.startsWith('/')",message="a key is what the status of an EtcdBackup tells: no path that leads out of the store"
	Key string `json:"key,omitempty"`
	// Survivor is a member from whose data a cluster that has lost its majority begins anew, in its place. Every volume keeps the data
	// that it has, in a directory beside those of the new beginning.
	//
	// +optional
	Survivor *EtcdSurvivorSpec `json:"survivor,omitempty"`
}

// EtcdSurvivorSpec names a member, and the cluster that is given up.
type EtcdSurvivorSpec struct {
	// Member is the name of the member, which is that of its pod: of those that are left, the one with the highest revision.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Member string `json:"member"`
	// ClusterID confirms that this is about the cluster in status.clusterID, which is given up: whatever its other members know that
	// this one does not is in no cluster any more. What begins anew has another identity, so that this is done once.
	//
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern:=`^[0-9a-f]+$`
	ClusterID string `json:"clusterID"`
}

// EtcdDeletionPolicy says what happens to the data of an EtcdCluster that is deleted.
type EtcdDeletionPolicy string

// The policies.
const (
	// EtcdRetain keeps the volumes.
	EtcdRetain EtcdDeletionPolicy = "Retain"
	// EtcdSnapshot takes a snapshot, and deletes the volumes when it is stored. Until then the EtcdCluster stays.
	EtcdSnapshot EtcdDeletionPolicy = "Snapshot"
	// EtcdDelete deletes the volumes.
	EtcdDelete EtcdDeletionPolicy = "Delete"
)

// EtcdStorageSpec is the volume of each member.
//
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="volumes keep their class: make a new cluster from a snapshot to change it",fieldPath=".storageClassName"
// +kubebuilder:validation:XValidation:rule="(has(self.accessMode) ? self.accessMode : 'ReadWriteOnce') == (has(oldSelf.accessMode) ? oldSelf.accessMode : 'ReadWriteOnce')",message="volumes keep their access mode: make a new cluster from a snapshot to change it",fieldPath=".accessMode"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.size) || (has(self.size) && quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0)",message="volumes can grow, and never shrink",fieldPath=".size"
type EtcdStorageSpec struct {
	// Size of each volume. Unset: 8Gi.
	//
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// StorageClassName of the volumes. Unset: the default class of the cluster.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`
	// AccessMode of the volumes. Unset: ReadWriteOnce.
	//
	// +optional
	// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteOncePod
	AccessMode corev1.PersistentVolumeAccessMode `json:"accessMode,omitempty"`
	// RetainPolicy says what happens to the volume of a member that is scaled away. Unset: Delete, since the data of a
	// removed member is of no use.
	//
	// +optional
	// +kubebuilder:validation:Enum=Retain;Delete
	RetainPolicy EtcdRetainPolicy `json:"retainPolicy,omitempty"`
}

// EtcdRetainPolicy says what happens to a volume that no member uses.
type EtcdRetainPolicy string

// The policies.
const (
	EtcdVolumeRetain EtcdRetainPolicy = "Retain"
	EtcdVolumeDelete EtcdRetainPolicy = "Delete"
)

// EtcdCompactionSpec says which revisions etcd forgets.
//
// +kubebuilder:validation:XValidation:rule="!has(self.retention) || self.retention.matches(has(self.mode) && self.mode == 'Revision' ? '^[0-9]+$' : '^([0-9]+(s|m|h))+$')",message="retention is a time such as 5m in the mode Periodic, and a number of revisions in the mode Revision",fieldPath=".retention"
type EtcdCompactionSpec struct {
	// Mode says whether revisions are forgotten by age or by number. Unset: Periodic.
	//
	// +optional
	// +kubebuilder:validation:Enum=Periodic;Revision
	Mode string `json:"mode,omitempty"`
	// Retention is how much is kept. Unset: 5m, or 1000 revisions.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Retention string `json:"retention,omitempty"`
}

// EtcdClusterTLSSpec says who signs the authorities of an etcd.
type EtcdClusterTLSSpec struct {
	// IssuerRef names an Issuer or ClusterIssuer that may sign certificate authorities. Unset: a self-signed one that the
	// operator makes.
	//
	// +optional
	IssuerRef *ObjectReference `json:"issuerRef,omitempty"`
}

// EtcdDefragSpec says when space is given back.
type EtcdDefragSpec struct {
	// Schedule, as cron has it, in UTC. Unset: whenever ThresholdRatio is passed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^@(hourly|daily|weekly|monthly)$|^([0-9*,/A-Za-z-]+ +){4}[0-9*,/A-Za-z-]+$')",message="a schedule has five fields, as in \"0 3 * * *\", or is one of @hourly, @daily, @weekly and @monthly"
	Schedule string `json:"schedule,omitempty"`
	// ThresholdRatio is how much of the database must be free space, from 0 to 1. Unset: 0.5.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0([.][0-9]+)?|1([.]0+)?)$')",message="a ratio is a number from 0 to 1, as a string: \"0.5\""
	ThresholdRatio string `json:"thresholdRatio,omitempty"`
	// AllowUnavailable lets a cluster of one member be defragmented, which takes no requests meanwhile.
	//
	// +optional
	AllowUnavailable bool `json:"allowUnavailable,omitempty"`
}

// EtcdMaintenanceSpec keeps the operator's hands off.
type EtcdMaintenanceSpec struct {
	// Paused stops every change to members and pods. Status is still reported.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// EtcdClusterList is a list of EtcdClusters.
//
// +kubebuilder:object:root=true
type EtcdClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdCluster `json:"items"`
}
