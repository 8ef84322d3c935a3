package v1alpha1

// AuthSpec configures authentication besides client certificates.
type AuthSpec struct {
	// OIDC accepts the tokens of an OpenID Connect issuer.
	//
	// +optional
	OIDC *OIDCConfiguration `json:"oidc,omitempty"`
	// Webhook authenticates tokens with a service.
	//
	// +optional
	Webhook *AuthenticationWebhook `json:"webhook,omitempty"`
	// TokenAuthFile has static tokens.
	//
	// +optional
	TokenAuthFile *TokenAuthFile `json:"tokenAuthFile,omitempty"`
	// ServiceAccount configures the tokens of service accounts in workspaces.
	//
	// +optional
	ServiceAccount *ServiceAccountAuthentication `json:"serviceAccount,omitempty"`
	// DropGroups are groups that the front proxy removes from users. Other components ignore this field. A * at the end is a wildcard.
	//
	// +optional
	DropGroups []string `json:"dropGroups,omitempty"`
	// PassOnGroups are the only groups that the front proxy keeps of users. Other components ignore this field. A * at the end is a wildcard.
	//
	// +optional
	PassOnGroups []string `json:"passOnGroups,omitempty"`
}

// OIDCConfiguration describes an OpenID Connect issuer.
type OIDCConfiguration struct {
	// IssuerURL is the URL of the issuer, and the claim iss in its tokens.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://')",message="must begin with https://, because the keys of the issuer are fetched from this URL"
	IssuerURL string `json:"issuerURL"`
	// ClientID that tokens must be issued for.
	//
	// +kubebuilder:validation:MinLength=1
	ClientID string `json:"clientID"`
	// ClientSecret has no effect: kcp verifies tokens and never requests them. Deprecated.
	//
	// +optional
	ClientSecret string `json:"clientSecret,omitempty"`
	// GroupsClaim is the claim with the groups of a user.
	//
	// +optional
	GroupsClaim string `json:"groupsClaim,omitempty"`
	// UsernameClaim is the claim with the name of a user.
	//
	// +optional
	UsernameClaim string `json:"usernameClaim,omitempty"`
	// GroupsPrefix is added to the name of each group.
	//
	// +optional
	GroupsPrefix string `json:"groupsPrefix,omitempty"`
	// UsernamePrefix is added to each username.
	//
	// +optional
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	// CAFileRef names the Secret with the CA that signed the issuer's certificate.
	//
	// +optional
	CAFileRef *OIDCCAFileRef `json:"caFileRef,omitempty"`
}

// OIDCCAFileRef names a key in a Secret.
type OIDCCAFileRef struct {
	// Name of the Secret.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key in the Secret. Unset: ca.crt.
	//
	// +optional
	Key string `json:"key,omitempty"`
}

// AuthenticationWebhook is a service that authenticates tokens.
type AuthenticationWebhook struct {
	// ConfigSecretName is the name of the Secret whose key kubeconfig has a kubeconfig for the service.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigSecretName string `json:"configSecretName"`
	// CacheAuthenticationTTL is how long answers are cached.
	//
	// +optional
	CacheAuthenticationTTL *Duration `json:"cacheAuthenticationTTL,omitempty"`
	// Version of the TokenReview objects that are sent.
	//
	// +optional
	// +kubebuilder:validation:Enum=v1beta1;v1
	Version string `json:"version,omitempty"`
}

// TokenAuthFile is a file with static tokens.
type TokenAuthFile struct {
	// SecretName is the name of the Secret with the file.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
	// Key in the Secret. Unset: token.csv.
	//
	// +optional
	Key string `json:"key,omitempty"`
}

// ServiceAccountAuthentication configures the tokens of service accounts.
type ServiceAccountAuthentication struct {
	// Enabled accepts the tokens of service accounts of every shard.
	Enabled bool `json:"enabled"`
}
