package v1alpha1

// AuthSpec says how clients prove who they are, besides with certificates.
type AuthSpec struct {
	// OIDC trusts the tokens of an OpenID Connect issuer.
	//
	// +optional
	OIDC *OIDCConfiguration `json:"oidc,omitempty"`
	// Webhook asks a service who a token belongs to.
	//
	// +optional
	Webhook *AuthenticationWebhook `json:"webhook,omitempty"`
	// TokenAuthFile has tokens that never change.
	//
	// +optional
	TokenAuthFile *TokenAuthFile `json:"tokenAuthFile,omitempty"`
	// ServiceAccount is about the tokens of service accounts in workspaces.
	//
	// +optional
	ServiceAccount *ServiceAccountAuthentication `json:"serviceAccount,omitempty"`
	// DropGroups are taken from users at the front proxy, which alone heeds this. A * at the end matches any rest.
	//
	// +optional
	DropGroups []string `json:"dropGroups,omitempty"`
	// PassOnGroups are all that users keep at the front proxy, which alone heeds this. A * at the end matches any rest.
	//
	// +optional
	PassOnGroups []string `json:"passOnGroups,omitempty"`
}

// OIDCConfiguration describes an OpenID Connect issuer.
type OIDCConfiguration struct {
	// IssuerURL is where the issuer is, and what its tokens say of their origin.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://')",message="the URL of an issuer begins with https://, because its keys are fetched from there"
	IssuerURL string `json:"issuerURL"`
	// ClientID that tokens must be made for.
	//
	// +kubebuilder:validation:MinLength=1
	ClientID string `json:"clientID"`
	// ClientSecret has no effect: kcp checks tokens and never asks for them. Deprecated.
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
	// GroupsPrefix is put before every group.
	//
	// +optional
	GroupsPrefix string `json:"groupsPrefix,omitempty"`
	// UsernamePrefix is put before every name.
	//
	// +optional
	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	// CAFileRef names the Secret with the authority of the issuer's own certificate.
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
	// Key in it. Unset: ca.crt.
	//
	// +optional
	Key string `json:"key,omitempty"`
}

// AuthenticationWebhook is a service that knows whom tokens belong to.
type AuthenticationWebhook struct {
	// ConfigSecretName names the Secret that says in its key kubeconfig how to reach the service.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ConfigSecretName string `json:"configSecretName"`
	// CacheAuthenticationTTL is how long answers are kept.
	//
	// +optional
	CacheAuthenticationTTL *Duration `json:"cacheAuthenticationTTL,omitempty"`
	// Version of the reviews that are sent.
	//
	// +optional
	// +kubebuilder:validation:Enum=v1beta1;v1
	Version string `json:"version,omitempty"`
}

// TokenAuthFile is a file of tokens.
type TokenAuthFile struct {
	// SecretName names the Secret that has the file.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
	// Key in it. Unset: token.csv.
	//
	// +optional
	Key string `json:"key,omitempty"`
}

// ServiceAccountAuthentication is about the tokens of service accounts.
type ServiceAccountAuthentication struct {
	// Enabled says whether they are taken from every shard.
	Enabled bool `json:"enabled"`
}
