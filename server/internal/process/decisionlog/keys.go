package decisionlog

// The keys of structured log entries. Log calls of the server use no other keys, so that an operator can select entries by them.
const (
	// Cluster is the name of a logical cluster, and Workspace its path.
	Cluster   = "cluster"
	Workspace = "workspace"
	// Shard is the name of a Shard.
	Shard = "shard"
	// Claim is a permission claim.
	Claim = "claim"
	// Resource, Namespace and Name identify an object in Cluster.
	Resource  = "resource"
	Namespace = "namespace"
	Name      = "name"
	// Controller is the name of the controller that writes the entry.
	Controller = "controller"
	// Reason is why: a message for people.
	Reason = "reason"
	// Phase is the new phase of an object, and Condition the type of the condition that changed.
	Phase     = "phase"
	Condition = "condition"
	Status    = "status"
	// Waiting lists the initializers or terminators that must finish first.
	Waiting = "waiting"
	// Identity is the identity hash of an export, or of a process in a leader election.
	Identity = "identity"

	// User, Verb and Path are those of a request. Decision is what Step decides about it.
	User     = "user"
	Verb     = "verb"
	Path     = "path"
	Decision = "decision"
	Step     = "step"
	URL      = "url"

	// Suppressed is the number of entries that were left out.
	Suppressed = "suppressed"
	// Error is an error that the server can continue with.
	Error = "err"

	Version    = "version"
	Directory  = "directory"
	Kubeconfig = "kubeconfig"
	Servers    = "servers"
	Member     = "member"
	Lease      = "lease"
	// Silent is how long a member has not responded.
	Silent  = "silent"
	Seconds = "seconds"
	Age     = "age"
	Limit   = "limit"
	// Before and After are sizes in bytes.
	Before = "bytesBefore"
	After  = "bytes"
)
