package v1alpha1

// AuditSpec configures audit logging.
type AuditSpec struct {
	// Policy selects the requests to record.
	//
	// +optional
	Policy *AuditPolicySpec `json:"policy,omitempty"`
	// Webhook receives the audit events.
	//
	// +optional
	Webhook *AuditWebhookSpec `json:"webhook,omitempty"`
}

// AuditPolicySpec is the source of the audit policy.
type AuditPolicySpec struct {
	// ConfigMap with the policy.
	//
	// +optional
	ConfigMap *LocalKeyReference `json:"configMap,omitempty"`
}

// AuditWebhookSpec is a service that receives audit events. Unset fields have kcp's defaults.
type AuditWebhookSpec struct {
	// ConfigSecretName is the name of the Secret whose key kubeconfig has a kubeconfig for the service.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ConfigSecretName string `json:"configSecretName,omitempty"`
	// Mode defines whether requests wait for the service.
	//
	// +optional
	// +kubebuilder:validation:Enum="";batch;blocking;blocking-strict
	Mode string `json:"mode,omitempty"`
	// Version of the events that are sent.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// InitialBackoff before the first retry.
	//
	// +optional
	InitialBackoff *Duration `json:"initialBackoff,omitempty"`
	// BatchBufferSize is the maximum number of events in the buffer.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	BatchBufferSize int `json:"batchBufferSize,omitempty"`
	// BatchMaxSize is the maximum number of events in a batch.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	BatchMaxSize int `json:"batchMaxSize,omitempty"`
	// BatchMaxWait is the maximum time before a batch that is not full is sent.
	//
	// +optional
	BatchMaxWait *Duration `json:"batchMaxWait,omitempty"`
	// BatchThrottleBurst is the maximum number of batches that are sent in a burst.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	BatchThrottleBurst int `json:"batchThrottleBurst,omitempty"`
	// BatchThrottleEnable limits the rate of batches.
	//
	// +optional
	BatchThrottleEnable bool `json:"batchThrottleEnable,omitempty"`
	// BatchThrottleQPS is the maximum number of batches per second: a number, as a string.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]+([.][0-9]+)?$')",message="must be a number such as \"10\" or \"0.5\""
	BatchThrottleQPS string `json:"batchThrottleQPS,omitempty"`
	// TruncateEnabled truncates events that are too large.
	//
	// +optional
	TruncateEnabled bool `json:"truncateEnabled,omitempty"`
	// TruncateMaxBatchSize is the maximum size of a batch in bytes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	TruncateMaxBatchSize int `json:"truncateMaxBatchSize,omitempty"`
	// TruncateMaxEventSize is the maximum size of an event in bytes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	TruncateMaxEventSize int `json:"truncateMaxEventSize,omitempty"`
}

// AuthorizationSpec configures authorization besides RBAC.
type AuthorizationSpec struct {
	// Webhook authorizes requests with a service.
	//
	// +optional
	Webhook *AuthorizationWebhookSpec `json:"webhook,omitempty"`
}

// AuthorizationWebhookSpec is a service that authorizes requests.
type AuthorizationWebhookSpec struct {
	// ConfigSecretName is the name of the Secret whose key kubeconfig has a kubeconfig for the service.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ConfigSecretName string `json:"configSecretName,omitempty"`
	// Version of the SubjectAccessReview objects that are sent.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// CacheAuthorizedTTL is how long an allowed request is cached.
	//
	// +optional
	CacheAuthorizedTTL *Duration `json:"cacheAuthorizedTTL,omitempty"`
	// CacheUnauthorizedTTL is how long a denied request is cached.
	//
	// +optional
	CacheUnauthorizedTTL *Duration `json:"cacheUnauthorizedTTL,omitempty"`
	// AllowPaths are paths that need no authorization. They replace kcp's defaults: /healthz, /readyz and /livez.
	//
	// +optional
	AllowPaths []string `json:"allowPaths,omitempty"`
}
