package v1alpha1

// Types of conditions of every kind, as kstatus reads them. Helm, Argo CD and Flux wait for these.
const (
	// ConditionReady is True when the object is what its spec asks for. Its message names what is waited for.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the operator works towards the spec.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when nothing will change until somebody changes the spec or what it refers to.
	ConditionStalled = "Stalled"
)

// ConditionRotating of RootShards and EtcdClusters is True while what former keys have signed is accepted besides what those of
// now have. Its reason tells how far the rotation is.
const ConditionRotating = "Rotating"

// Reasons of Rotating, in the order in which they follow each other.
const (
	// RotatingDistributing: not every pod accepts a new key yet, so that nothing is signed with it.
	RotatingDistributing = "Distributing"
	// RotatingRenewable: certificates of former authorities are in use, which the message names.
	RotatingRenewable = "CertificatesToRenew"
	// RotatingRenewed: nothing that the operator knows of needs the former keys. They are accepted until a Secret is deleted, which
	// the message names.
	RotatingRenewed = "Renewed"
)

// Types of conditions of RootShards and Kubeconfigs.
const (
	// ConditionAvailable is True when enough of the workload answers to be used.
	ConditionAvailable = "Available"
	// ConditionCertificatesReady is True when every certificate is issued and valid.
	ConditionCertificatesReady = "CertificatesReady"
	// ConditionCertificatesExpiring is True when a certificate is not renewed, although it is high time.
	ConditionCertificatesExpiring = "CertificatesExpiring"
	// ConditionStepFailed is True when a step of the operator with an EtcdCluster failed. The step is tried again.
	ConditionStepFailed = "StepFailed"
	// ConditionRolloutHeld is True when a new operator would make pods otherwise, and nobody has asked for them to be replaced.
	ConditionRolloutHeld = "RolloutHeld"
	// ConditionEtcdReady is True when the managed etcd has quorum, or the external one answers.
	ConditionEtcdReady = "EtcdReady"
	// ConditionReferenceValid is True when everything that the spec names exists.
	ConditionReferenceValid = "ReferenceValid"
)

// Types of conditions of EtcdClusters, besides Available, CertificatesReady, CertificatesExpiring and RolloutHeld.
const (
	// ConditionProgressing is True while members are added, removed, replaced or upgraded.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True when a member is missing or unhealthy, and the others have quorum.
	ConditionDegraded = "Degraded"
	// ConditionQuorumLost is True when the cluster takes no writes. The operator then destroys nothing, and waits for help.
	ConditionQuorumLost = "QuorumLost"
	// ConditionBackupHealthy is True when the last snapshot was taken and verified in time.
	ConditionBackupHealthy = "BackupHealthy"
	// ConditionSecretsIncluded is False of a snapshot that needs Secrets of the host cluster, which it has not, to be of use.
	ConditionSecretsIncluded = "SecretsIncluded"
	// ConditionVersionSkew is True while members run different versions.
	ConditionVersionSkew = "VersionSkew"
	// ConditionAlarm is True while etcd reports that it is out of space or corrupt.
	ConditionAlarm = "Alarm"
)

// Annotations that people set.
const (
	// RenewAnnotation has leaf certificates renewed, once for each value that it is given.
	RenewAnnotation = "operator.kcp.io/renew"
	// RolloutAnnotation has the pods of a RootShard, and those of its etcd, made as the operator makes them now, whenever its value changes.
	// An EtcdCluster of its own may have it, too.
	RolloutAnnotation = "operator.kcp.io/rollout"
	// AllowVersionAnnotation has a version of kcp that a RootShard may change to, however far it is from the one that runs.
	AllowVersionAnnotation = "operator.kcp.io/allow-version"
)

// Phase sums up the conditions in a word, for people.
type Phase string

// The phases.
const (
	PhaseProvisioning Phase = "Provisioning"
	PhaseRunning      Phase = "Running"
	PhaseReady        Phase = "Ready"
	PhaseFailed       Phase = "Failed"
	PhaseDeleting     Phase = "Deleting"
)
