package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdCluster is an etcd cluster that the operator creates, secures and repairs.
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
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 45 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="the name of an EtcdCluster is part of names of pods and Services: at most 45 lower case letters, digits and dashes, beginning with a letter"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.version) || !has(self.status) || !has(self.status.currentVersion) || (int(self.spec.version.split('.')[0]) == int(self.status.currentVersion.split('.')[0]) && int(self.spec.version.split('.')[1]) >= int(self.status.currentVersion.split('.')[1]) && int(self.spec.version.split('.')[1]) <= int(self.status.currentVersion.split('.')[1]) + 1)",messageExpression="'the cluster runs ' + self.status.currentVersion + ': etcd can only be upgraded to the next minor version; to skip a minor version or to downgrade, restore a snapshot into a new cluster'",fieldPath=".spec.version"
type EtcdCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec EtcdClusterSpec `json:"spec,omitempty"`
	// +optional
	Status EtcdClusterStatus `json:"status,omitempty"`
}

// EtcdClusterSpec is the desired state of an etcd cluster.
//
// +kubebuilder:validation:XValidation:rule="has(self.clusterDomain) == has(oldSelf.clusterDomain) && (!has(self.clusterDomain) || self.clusterDomain == oldSelf.clusterDomain)",message="clusterDomain is immutable, because members address each other in this domain: to change it, create a new cluster from a snapshot",fieldPath=".clusterDomain"
// +kubebuilder:validation:XValidation:rule="!has(self.version) || !has(oldSelf.version) || (int(self.version.split('.')[0]) == int(oldSelf.version.split('.')[0]) && int(self.version.split('.')[1]) <= int(oldSelf.version.split('.')[1]) + 1)",message="etcd is upgraded one minor version at a time: upgrade to the next one, wait until the cluster is Ready, then continue",fieldPath=".version"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.storage) || has(self.storage)",message="storage cannot be removed: only its size can grow",fieldPath=".storage"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'Snapshot' || has(self.lastSnapshot)",message="the deletionPolicy Snapshot requires lastSnapshot, where the snapshot is stored",fieldPath=".lastSnapshot"
type EtcdClusterSpec struct {
	// Replicas is the number of members. Unset: 3.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self in [1, 3, 5]",message="must be 1, 3 or 5: an even number of members tolerates no more failures than one member less"
	Replicas *int32 `json:"replicas,omitempty"`
	// Version of etcd, as x.y.z. Unset: the default version of the operator that created the cluster.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern:=`^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}$`
	Version string `json:"version,omitempty"`
	// ClusterDomain is the domain of the host cluster. Unset: the one of the RootShard, or else cluster.local.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// Image of the members. Unset: the image of the version.
	//
	// +optional
	Image *ImageSpec `json:"image,omitempty"`
	// Storage of each member.
	//
	// +optional
	Storage *EtcdStorageSpec `json:"storage,omitempty"`
	// QuotaBackendBytes is the maximum size of the database. When it is reached, etcd accepts no more writes. Unset: 2 GiB. With more than
	// 8 GiB, members are slow to start and to replace.
	//
	// +optional
	// +kubebuilder:validation:Minimum=16777216
	QuotaBackendBytes *int64 `json:"quotaBackendBytes,omitempty"`
	// Compaction of old revisions.
	//
	// +optional
	Compaction *EtcdCompactionSpec `json:"compaction,omitempty"`
	// SnapshotCount is the number of changes after which a member writes its state to disk. Unset: 10000.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	SnapshotCount *int64 `json:"snapshotCount,omitempty"`
	// Resources of each member.
	//
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodTemplate customizes the pods of the members.
	//
	// +optional
	PodTemplate *PodTemplateSpec `json:"podTemplate,omitempty"`
	// TLS between members, and between them and their clients. It cannot be turned off.
	//
	// +optional
	TLS *EtcdClusterTLSSpec `json:"tls,omitempty"`
	// PDB configures the PodDisruptionBudget, which allows the eviction of one member at a time if there are three or more.
	//
	// +optional
	PDB *PDBSpec `json:"pdb,omitempty"`
	// Monitoring of the members.
	//
	// +optional
	Monitoring *MonitoringSpec `json:"monitoring,omitempty"`
	// Defrag configures defragmentation, which returns the space that compaction frees to the file system.
	//
	// +optional
	Defrag *EtcdDefragSpec `json:"defrag,omitempty"`
	// Maintenance pauses the operator for this cluster.
	//
	// +optional
	Maintenance *EtcdMaintenanceSpec `json:"maintenance,omitempty"`
	// Restore is the source of the data: a snapshot for a new cluster, or a member that survived the loss of quorum.
	//
	// +optional
	Restore *EtcdRestoreSpec `json:"restore,omitempty"`
	// DeletionPolicy defines what happens to the data when the EtcdCluster is deleted. Unset: Retain.
	//
	// +optional
	// +kubebuilder:validation:Enum=Retain;Snapshot;Delete
	DeletionPolicy EtcdDeletionPolicy `json:"deletionPolicy,omitempty"`
	// LastSnapshot is where the snapshot of the DeletionPolicy Snapshot is stored.
	//
	// +optional
	LastSnapshot *EtcdStoreSpec `json:"lastSnapshot,omitempty"`
}

// EtcdRestoreSpec names a snapshot, by its store and key, or a survivor.
//
// +kubebuilder:validation:XValidation:rule="has(self.survivor) ? !has(self.store) && !has(self.key) : has(self.store) && has(self.key)",message="set either store and key, for a snapshot, or survivor, for a remaining member of this cluster"
type EtcdRestoreSpec struct {
	// Store with the snapshot. The operator reads the snapshot before the cluster starts for the first time, and never again.
	//
	// +optional
	Store *EtcdStoreSpec `json:"store,omitempty"`
	// Key of the snapshot in the store: status.snapshot.key of the EtcdBackup, without changes. Only the prefix of a bucket is added to it.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains('..') && !self.startsWith('/')",message="must be status.snapshot.key of an EtcdBackup, without .. and without a leading /"
	Key string `json:"key,omitempty"`
	// Survivor is a member from whose data a cluster that has lost quorum is recovered, in place. Each volume keeps its old data, in a
	// directory beside the one of the recovered cluster.
	//
	// +optional
	Survivor *EtcdSurvivorSpec `json:"survivor,omitempty"`
}

// EtcdSurvivorSpec names a surviving member, and confirms the cluster to abandon.
type EtcdSurvivorSpec struct {
	// Member is the name of the member and of its pod. Of the remaining members, choose the one with the highest revision.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Member string `json:"member"`
	// ClusterID must be equal to status.clusterID, to confirm that this cluster is abandoned: data that only its other members have is
	// lost. The recovered cluster has another ID, so the recovery happens only once.
	//
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern:=`^[0-9a-f]+$`
	ClusterID string `json:"clusterID"`
}

// EtcdDeletionPolicy defines what happens to the data of a deleted EtcdCluster.
type EtcdDeletionPolicy string

// The policies.
const (
	// EtcdRetain keeps the volumes.
	EtcdRetain EtcdDeletionPolicy = "Retain"
	// EtcdSnapshot takes a snapshot, and deletes the volumes when it is stored. Until then, the EtcdCluster remains.
	EtcdSnapshot EtcdDeletionPolicy = "Snapshot"
	// EtcdDelete deletes the volumes.
	EtcdDelete EtcdDeletionPolicy = "Delete"
)

// EtcdStorageSpec is the volume of each member.
//
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="storageClassName is immutable: to change it, create a new cluster from a snapshot",fieldPath=".storageClassName"
// +kubebuilder:validation:XValidation:rule="(has(self.accessMode) ? self.accessMode : 'ReadWriteOnce') == (has(oldSelf.accessMode) ? oldSelf.accessMode : 'ReadWriteOnce')",message="accessMode is immutable: to change it, create a new cluster from a snapshot",fieldPath=".accessMode"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.size) || (has(self.size) && quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0)",message="volumes can grow, but not shrink",fieldPath=".size"
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
	// RetainPolicy defines what happens to the volume of a member that is removed by scaling down. Unset: Delete, because the data of a
	// removed member is not needed.
	//
	// +optional
	// +kubebuilder:validation:Enum=Retain;Delete
	RetainPolicy EtcdRetainPolicy `json:"retainPolicy,omitempty"`
}

// EtcdRetainPolicy defines what happens to a volume that no member uses.
type EtcdRetainPolicy string

// The policies.
const (
	EtcdVolumeRetain EtcdRetainPolicy = "Retain"
	EtcdVolumeDelete EtcdRetainPolicy = "Delete"
)

// EtcdCompactionSpec defines which old revisions etcd removes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.retention) || self.retention.matches(has(self.mode) && self.mode == 'Revision' ? '^[0-9]+$' : '^([0-9]+(s|m|h))+$')",message="must be a duration such as 5m in the mode Periodic, and a number of revisions in the mode Revision",fieldPath=".retention"
type EtcdCompactionSpec struct {
	// Mode defines whether revisions are removed by age or by number. Unset: Periodic.
	//
	// +optional
	// +kubebuilder:validation:Enum=Periodic;Revision
	Mode string `json:"mode,omitempty"`
	// Retention is the age or the number of revisions to keep. Unset: 5m, or 1000 revisions.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Retention string `json:"retention,omitempty"`
}

// EtcdClusterTLSSpec selects the issuer of the certificate authorities of an etcd cluster.
type EtcdClusterTLSSpec struct {
	// IssuerRef names an Issuer or ClusterIssuer that may sign certificate authorities. Unset: a self-signed issuer that
	// the operator creates.
	//
	// +optional
	IssuerRef *ObjectReference `json:"issuerRef,omitempty"`
}

// EtcdDefragSpec defines when members are defragmented.
type EtcdDefragSpec struct {
	// Schedule in cron format, in UTC. Unset: whenever ThresholdRatio is exceeded.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^@(hourly|daily|weekly|monthly)$|^([0-9*,/A-Za-z-]+ +){4}[0-9*,/A-Za-z-]+$')",message="a schedule has five fields, as in \"0 3 * * *\", or is one of @hourly, @daily, @weekly and @monthly"
	Schedule string `json:"schedule,omitempty"`
	// ThresholdRatio is the minimum share of free space in the database, from 0 to 1. Unset: 0.5.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0([.][0-9]+)?|1([.]0+)?)$')",message="must be a number from 0 to 1, as a string such as \"0.5\""
	ThresholdRatio string `json:"thresholdRatio,omitempty"`
	// AllowUnavailable allows the defragmentation of a cluster with one member, which accepts no requests during that time.
	//
	// +optional
	AllowUnavailable bool `json:"allowUnavailable,omitempty"`
}

// EtcdMaintenanceSpec pauses the operator.
type EtcdMaintenanceSpec struct {
	// Paused stops all changes to members and pods. The operator still updates the status.
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
