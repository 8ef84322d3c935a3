package v1alpha1

// Types of conditions that every kind has, as in kstatus. Helm, Argo CD and Flux wait for these.
const (
	// ConditionReady is True when the object matches its spec. Otherwise, its message says what the operator waits for.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the operator works towards the spec.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when nothing will change until a user changes the spec or what it refers to.
	ConditionStalled = "Stalled"
)

// ConditionRotating of RootShards and EtcdClusters is True while signatures of former keys are accepted besides those of the current
// keys. Its reason is the progress of the rotation.
const ConditionRotating = "Rotating"

// Reasons of Rotating, in order.
const (
	// RotatingDistributing: not every pod accepts a new key yet, so it does not sign yet.
	RotatingDistributing = "Distributing"
	// RotatingRenewable: certificates of former CAs are in use. The message names them.
	RotatingRenewable = "CertificatesToRenew"
	// RotatingRenewed: nothing that the operator knows of needs the former keys. They are accepted until you delete the Secret that
	// the message names.
	RotatingRenewed = "Renewed"
)

// Types of conditions of RootShards and Kubeconfigs.
const (
	// ConditionAvailable is True when enough pods answer for the workload to be used.
	ConditionAvailable = "Available"
	// ConditionCertificatesReady is True when every certificate is issued and valid.
	ConditionCertificatesReady = "CertificatesReady"
	// ConditionCertificatesExpiring is True when the renewal of a certificate is overdue.
	ConditionCertificatesExpiring = "CertificatesExpiring"
	// ConditionStepFailed is True when a step of the operator for an EtcdCluster failed. The operator retries the step.
	ConditionStepFailed = "StepFailed"
	// ConditionRolloutHeld is True when a new version of the operator has another pod template, and replacing the pods was not requested;
	// and while a component and its managed etcd wait for each other before pods are replaced.
	ConditionRolloutHeld = "RolloutHeld"
	// ConditionEtcdReady is True when the managed etcd has quorum, or the external etcd answers.
	ConditionEtcdReady = "EtcdReady"
	// ConditionEtcdShared is True while an older RootShard of the namespace has its data under the same keys of the same external etcd.
	ConditionEtcdShared = "EtcdShared"
	// ConditionRegistered is True when kcp has the shard with its current URL, and the root shard reaches it. Only Shards have it.
	ConditionRegistered = "Registered"
	// ConditionDrained is True when a shard with spec.drain holds no logical clusters. Other shards do not have it.
	ConditionDrained = "Drained"
	// ConditionExposed is True when the Ingress of a front proxy exists, and the Gateways have accepted its TLSRoute. Only FrontProxies with
	// spec.ingress or spec.tlsRoute have it.
	ConditionExposed = "Exposed"
	// ConditionReferenceValid is True when all objects that the spec names exist.
	ConditionReferenceValid = "ReferenceValid"
)

// Types of conditions of EtcdClusters, besides Available, CertificatesReady, CertificatesExpiring and RolloutHeld.
const (
	// ConditionProgressing is True while members are added, removed, replaced or upgraded.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True when a member is missing or unhealthy, and the others have quorum.
	ConditionDegraded = "Degraded"
	// ConditionQuorumLost is True when the cluster accepts no writes. The operator then deletes nothing, and waits for a user.
	ConditionQuorumLost = "QuorumLost"
	// ConditionBackupHealthy is True when the last snapshot was taken and verified in time.
	ConditionBackupHealthy = "BackupHealthy"
	// ConditionSecretsIncluded is False when a snapshot is usable only with Secrets of the host cluster that are not stored with it.
	ConditionSecretsIncluded = "SecretsIncluded"
	// ConditionVersionSkew is True while members run different versions.
	ConditionVersionSkew = "VersionSkew"
	// ConditionAlarm is True while etcd reports that it is out of space or corrupt.
	ConditionAlarm = "Alarm"
)

// Annotations that users set.
const (
	// RenewAnnotation requests the renewal of leaf certificates, once for each new value.
	RenewAnnotation = "operator.kcp.io/renew"
	// RolloutAnnotation, when its value changes, replaces the pods of a RootShard and of its etcd if the operator has a newer template for
	// them. An EtcdCluster without a RootShard can have it, too.
	RolloutAnnotation = "operator.kcp.io/rollout"
	// AllowVersionAnnotation names a version of kcp that a RootShard may change to, whatever version it runs.
	AllowVersionAnnotation = "operator.kcp.io/allow-version"
)

// Phase summarizes the conditions in one word.
type Phase string

// The phases.
const (
	PhaseProvisioning Phase = "Provisioning"
	PhaseRunning      Phase = "Running"
	PhaseReady        Phase = "Ready"
	PhaseFailed       Phase = "Failed"
	PhaseDeleting     Phase = "Deleting"
)
