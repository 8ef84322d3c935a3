package v1alpha1

// AuditSpec says what is recorded of requests, and where.
type AuditSpec struct {
	// Policy says which requests are recorded.
	//
	// +optional
	Policy *AuditPolicySpec `json:"policy,omitempty"`
	// Webhook is sent what is recorded.
	//
	// +optional
	Webhook *AuditWebhookSpec `json:"webhook,omitempty"`
}

// AuditPolicySpec says where the policy is.
type AuditPolicySpec struct {
	// ConfigMap that has the policy.
	//
	// +optional
	ConfigMap *LocalKeyReference `json:"configMap,omitempty"`
}

// AuditWebhookSpec is a service that takes audit events. Fields that are unset have kcp's own defaults.
type AuditWebhookSpec struct {
	// ConfigSecretName names the Secret that says in its key kubeconfig how to reach the service.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ConfigSecretName string `json:"configSecretName,omitempty"`
	// Mode says whether requests wait for the service.
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
	// BatchBufferSize is how many events may wait.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	BatchBufferSize int `json:"batchBufferSize,omitempty"`
	// BatchMaxSize is how many events are sent at once.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	BatchMaxSize int `json:"batchMaxSize,omitempty"`
	// BatchMaxWait is how long a batch waits until it is full.
	//
	// +optional
	BatchMaxWait *Duration `json:"batchMaxWait,omitempty"`
	// BatchThrottleBurst is how many batches may be sent in one go.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	BatchThrottleBurst int `json:"batchThrottleBurst,omitempty"`
	// BatchThrottleEnable says whether batches are throttled.
	//
	// +optional
	BatchThrottleEnable bool `json:"batchThrottleEnable,omitempty"`
	// BatchThrottleQPS is how many batches are sent a second: a number, as a string.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]+([.][0-9]+)?$')",message="batches a second are a number such as \"10\" or \"0.5\""
	BatchThrottleQPS string `json:"batchThrottleQPS,omitempty"`
	// TruncateEnabled says whether events that are too large are shortened.
	//
	// +optional
	TruncateEnabled bool `json:"truncateEnabled,omitempty"`
	// TruncateMaxBatchSize is how many bytes a batch may have.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	TruncateMaxBatchSize int `json:"truncateMaxBatchSize,omitempty"`
	// TruncateMaxEventSize is how many bytes an event may have.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	TruncateMaxEventSize int `json:"truncateMaxEventSize,omitempty"`
}

// AuthorizationSpec says who else is asked whether a request is allowed.
type AuthorizationSpec struct {
	// Webhook is asked.
	//
	// +optional
	Webhook *AuthorizationWebhookSpec `json:"webhook,omitempty"`
}

// AuthorizationWebhookSpec is a service that decides.
type AuthorizationWebhookSpec struct {
	// ConfigSecretName names the Secret that says in its key kubeconfig how to reach the service.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ConfigSecretName string `json:"configSecretName,omitempty"`
	// Version of the reviews that are sent.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// CacheAuthorizedTTL is how long a yes is kept.
	//
	// +optional
	CacheAuthorizedTTL *Duration `json:"cacheAuthorizedTTL,omitempty"`
	// CacheUnauthorizedTTL is how long a no is kept.
	//
	// +optional
	CacheUnauthorizedTTL *Duration `json:"cacheUnauthorizedTTL,omitempty"`
	// AllowPaths are open to everybody, in place of kcp's /healthz, /readyz and /livez.
	//
	// +optional
	AllowPaths []string `json:"allowPaths,omitempty"`
}
