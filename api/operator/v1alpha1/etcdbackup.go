package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdBackup is one snapshot of an EtcdCluster: the operator takes it when the object is created, verifies it, and stores it. Deleting the
// object does not delete the snapshot.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=kcp,shortName=ebk
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.snapshot.revision`
// +kubebuilder:printcolumn:name="Size",type=integer,JSONPath=`.status.snapshot.size`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52",message="the name of an EtcdBackup is part of the name of its Job: at most 52 characters"
type EtcdBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec EtcdBackupSpec `json:"spec"`
	// +optional
	Status EtcdBackupStatus `json:"status,omitempty"`
}

// EtcdBackupSpec defines which cluster to take a snapshot of, and where to store it.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable, because a snapshot is taken once: create another EtcdBackup"
type EtcdBackupSpec struct {
	// Cluster is the name of the EtcdCluster.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	Cluster string `json:"cluster"`
	// Store is where the snapshot is stored.
	Store EtcdStoreSpec `json:"store"`
	// KeepLast is the number of snapshots of the cluster to keep in the store, including this one; older ones are deleted. Unset: all, if
	// KeepDaily and KeepWeekly are also unset.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepLast *int32 `json:"keepLast,omitempty"`
	// KeepDaily is the number of days for which the last snapshot of the day is also kept. Days without a snapshot do not count. Days are
	// in UTC.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepDaily *int32 `json:"keepDaily,omitempty"`
	// KeepWeekly is the number of weeks for which the last snapshot of the week is also kept. Weeks without a snapshot do not count. Weeks
	// start on Monday.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepWeekly *int32 `json:"keepWeekly,omitempty"`
	// IncludeSecrets stores the encrypted Secrets of the RootShard with the snapshot: its CAs and the keys of service accounts, without
	// which no client has access to the restored data. Unset: they are not stored, and the condition SecretsIncluded is False as a warning.
	//
	// +optional
	IncludeSecrets *EtcdBackupSecretsSpec `json:"includeSecrets,omitempty"`
}

// EtcdBackupSecretsSpec configures the encryption of the Secrets that are stored with a snapshot.
type EtcdBackupSecretsSpec struct {
	// EncryptionKeyRef names the encryption key: at least 32 random bytes. Keep a copy of it outside of the cluster and the store: without
	// it, the Secrets cannot be read.
	EncryptionKeyRef LocalKeyReference `json:"encryptionKeyRef"`
}

// EtcdStoreSpec is a store for snapshots.
//
// +kubebuilder:validation:XValidation:rule="has(self.volume) != has(self.s3)",message="set exactly one of volume and s3"
type EtcdStoreSpec struct {
	// Volume stores snapshots on a PersistentVolumeClaim.
	//
	// +optional
	Volume *EtcdVolumeStore `json:"volume,omitempty"`
	// S3 stores snapshots in a bucket of a service that is compatible with S3.
	//
	// +optional
	S3 *EtcdS3Store `json:"s3,omitempty"`
}

// EtcdVolumeStore is a volume with snapshots.
type EtcdVolumeStore struct {
	// ClaimName is the name of the PersistentVolumeClaim in the same namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClaimName string `json:"claimName"`
}

// EtcdS3Store is a bucket with snapshots.
type EtcdS3Store struct {
	// Endpoint is the URL of the service: https:// for TLS, or http://.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://') || self.startsWith('http://')",message="an endpoint is a URL such as https://s3.example.com"
	Endpoint string `json:"endpoint"`
	// Bucket is the name of an existing bucket.
	//
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	Bucket string `json:"bucket"`
	// Prefix of the names of objects.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Prefix string `json:"prefix,omitempty"`
	// Region of the bucket. Unset: the default of the service.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// CredentialsSecretRef names the Secret with the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and ca.crt if the
	// service's certificate is not signed by a public CA.
	CredentialsSecretRef LocalReference `json:"credentialsSecretRef"`
}

// EtcdBackupStatus is the observed state of a snapshot.
type EtcdBackupStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase summarizes the conditions: Running, Ready or Failed.
	//
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Conditions: Ready, Reconciling and Stalled; SecretsIncluded, which is False if the snapshot needs
	// Secrets that are not stored with it; the message names them.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Snapshot is the stored snapshot.
	//
	// +optional
	Snapshot *EtcdSnapshotStatus `json:"snapshot,omitempty"`
	// CompletedAt is when the snapshot was stored or failed.
	//
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}

// EtcdSnapshotStatus is a snapshot in a store.
type EtcdSnapshotStatus struct {
	// Key of the snapshot in the store, without the prefix of a bucket. Use it as spec.restore.key of an EtcdCluster.
	Key string `json:"key"`
	// Revision of the data.
	Revision int64 `json:"revision"`
	// Size in bytes.
	Size int64 `json:"size"`
	// ClusterID is the ID of the etcd cluster, in hexadecimal.
	//
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// EtcdVersion is the version of the member from which the snapshot was taken.
	//
	// +optional
	EtcdVersion string `json:"etcdVersion,omitempty"`
	// KCPVersion is the version of kcp that wrote the data, if the etcd belongs to a RootShard and the tag of its image has a version.
	//
	// +optional
	KCPVersion string `json:"kcpVersion,omitempty"`
	// KeyPrefix is the prefix of the keys of this kcp. Unset: the default of the component.
	//
	// +optional
	KeyPrefix string `json:"keyPrefix,omitempty"`
	// Duration is how long it took to take, verify and store the snapshot.
	//
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
	// Hash of the data.
	//
	// +optional
	Hash int64 `json:"hash,omitempty"`
	// Version of etcd's storage format.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// SHA256 of the file, in hexadecimal.
	//
	// +optional
	SHA256 string `json:"sha256,omitempty"`
}

// EtcdBackupList is a list of EtcdBackups.
//
// +kubebuilder:object:root=true
type EtcdBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdBackup `json:"items"`
}
