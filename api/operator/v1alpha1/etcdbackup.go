package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdBackup is one snapshot of an EtcdCluster: it is taken when the object is made, verified, and stored. Deleting the object
// leaves the snapshot where it is.
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
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52",message="the name of an EtcdBackup becomes part of that of a Job: at most 52 characters"
type EtcdBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec EtcdBackupSpec `json:"spec"`
	// +optional
	Status EtcdBackupStatus `json:"status,omitempty"`
}

// EtcdBackupSpec says of what a snapshot is taken, and where it goes.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a snapshot is taken once: make another EtcdBackup"
type EtcdBackupSpec struct {
	// Cluster is the name of the EtcdCluster.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	Cluster string `json:"cluster"`
	// Store is where the snapshot goes.
	Store EtcdStoreSpec `json:"store"`
	// KeepLast is how many snapshots of the cluster stay in the store after this one was added; older ones are deleted. Unset:
	// all, if KeepDaily and KeepWeekly are, too.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepLast *int32 `json:"keepLast,omitempty"`
	// KeepDaily is for how many days, of those with snapshots, the last one of each stays as well. Days are those of UTC.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepDaily *int32 `json:"keepDaily,omitempty"`
	// KeepWeekly is for how many weeks, of those with snapshots, the last one of each stays as well. They begin on Mondays.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepWeekly *int32 `json:"keepWeekly,omitempty"`
	// IncludeSecrets stores the Secrets of the RootShard beside the snapshot, encrypted: its authorities and the keys of service accounts,
	// without which nobody has access to what is restored. Unset: they are not stored, and the condition SecretsIncluded is a warning.
	//
	// +optional
	IncludeSecrets *EtcdBackupSecretsSpec `json:"includeSecrets,omitempty"`
}

// EtcdBackupSecretsSpec says how the Secrets that belong to a snapshot are encrypted.
type EtcdBackupSecretsSpec struct {
	// EncryptionKeyRef names the key: 32 bytes or more, made by chance. Keep it where the cluster and the store are not: who has lost
	// it cannot read the Secrets.
	EncryptionKeyRef LocalKeyReference `json:"encryptionKeyRef"`
}

// EtcdStoreSpec is a place for snapshots.
//
// +kubebuilder:validation:XValidation:rule="has(self.volume) != has(self.s3)",message="snapshots are in one place: set either volume or s3"
type EtcdStoreSpec struct {
	// Volume keeps snapshots on a PersistentVolumeClaim.
	//
	// +optional
	Volume *EtcdVolumeStore `json:"volume,omitempty"`
	// S3 keeps snapshots in a bucket of anything that speaks S3.
	//
	// +optional
	S3 *EtcdS3Store `json:"s3,omitempty"`
}

// EtcdVolumeStore is a volume with snapshots.
type EtcdVolumeStore struct {
	// ClaimName is the name of the PersistentVolumeClaim, of the same namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClaimName string `json:"claimName"`
}

// EtcdS3Store is a bucket with snapshots.
type EtcdS3Store struct {
	// Endpoint is the URL of the service. Its scheme says whether there is TLS.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://') || self.startsWith('http://')",message="an endpoint is a URL such as https://s3.example.com"
	Endpoint string `json:"endpoint"`
	// Bucket that exists.
	//
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	Bucket string `json:"bucket"`
	// Prefix of the names of objects.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Prefix string `json:"prefix,omitempty"`
	// Region of the bucket. Unset: the service knows.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// CredentialsSecretRef names the Secret with the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and ca.crt if the
	// service has a certificate that not everybody trusts.
	CredentialsSecretRef LocalReference `json:"credentialsSecretRef"`
}

// EtcdBackupStatus is what became of a snapshot.
type EtcdBackupStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase sums up the conditions: Running, Ready or Failed.
	//
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Conditions: Ready, Reconciling and Stalled; SecretsIncluded, if it is False, tells what the snapshot is not enough without.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Snapshot, once it is stored.
	//
	// +optional
	Snapshot *EtcdSnapshotStatus `json:"snapshot,omitempty"`
	// CompletedAt is when the snapshot was stored, or could not be.
	//
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}

// EtcdSnapshotStatus is a snapshot in a store.
type EtcdSnapshotStatus struct {
	// Key by which the store has it, below the prefix of a bucket: that is what spec.restore.key of an EtcdCluster is to be.
	Key string `json:"key"`
	// Revision of the data.
	Revision int64 `json:"revision"`
	// Size in bytes.
	Size int64 `json:"size"`
	// ClusterID is the identity of the etcd, in hexadecimal.
	//
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// EtcdVersion is the version of the member that gave the snapshot.
	//
	// +optional
	EtcdVersion string `json:"etcdVersion,omitempty"`
	// KCPVersion is the version of the kcp whose data this is, if the etcd is that of a RootShard, and its image tells.
	//
	// +optional
	KCPVersion string `json:"kcpVersion,omitempty"`
	// KeyPrefix is the prefix of that kcp's keys. Unset: the component's own.
	//
	// +optional
	KeyPrefix string `json:"keyPrefix,omitempty"`
	// Duration is how long it took to take, to verify and to store it.
	//
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
	// Hash of the data.
	//
	// +optional
	Hash int64 `json:"hash,omitempty"`
	// Version of the data's format, as etcd has it.
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
