package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkspaceAuthenticationConfiguration admits users whose tokens an issuer of the workspace's choice has signed.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
type WorkspaceAuthenticationConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec WorkspaceAuthenticationConfigurationSpec `json:"spec"`
}

// WorkspaceAuthenticationConfigurationSpec has the form of the AuthenticationConfiguration of a kube-apiserver.
type WorkspaceAuthenticationConfigurationSpec struct {
	// JWT are the issuers.
	//
	// +required
	JWT []JWTAuthenticator `json:"jwt"`
}

// JWTAuthenticator accepts the tokens of one issuer.
type JWTAuthenticator struct {
	// Issuer of the tokens.
	//
	// +required
	Issuer Issuer `json:"issuer"`
	// ClaimValidationRules are conditions on the claims of a token.
	//
	// +optional
	ClaimValidationRules []ClaimValidationRule `json:"claimValidationRules,omitempty"`
	// ClaimMappings turn claims into an identity.
	//
	// +required
	ClaimMappings ClaimMappings `json:"claimMappings"`
	// UserValidationRules are conditions on the identity.
	//
	// +optional
	UserValidationRules []UserValidationRule `json:"userValidationRules,omitempty"`
}

// AudienceMatchPolicy says how audiences are compared.
type AudienceMatchPolicy string

// AudienceMatchPolicyMatchAny accepts a token with any of several audiences.
const AudienceMatchPolicyMatchAny AudienceMatchPolicy = "MatchAny"

// Issuer is an OpenID Connect provider.
type Issuer struct {
	// URL is the value of the claim iss.
	//
	// +required
	URL string `json:"url"`
	// DiscoveryURL is where the configuration of the issuer is, if not below its URL.
	//
	// +optional
	DiscoveryURL string `json:"discoveryURL,omitempty"`
	// CertificateAuthority that the issuer's certificate is verified with, in PEM. Empty: those of the system.
	//
	// +optional
	CertificateAuthority string `json:"certificateAuthority,omitempty"`
	// Audiences that tokens must be for.
	//
	// +optional
	Audiences []string `json:"audiences,omitempty"`
	// AudienceMatchPolicy is MatchAny if there is more than one audience.
	//
	// +optional
	AudienceMatchPolicy AudienceMatchPolicy `json:"audienceMatchPolicy,omitempty"`
}

// ClaimValidationRule is a claim with a value, or a CEL expression.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) || has(self.expression)",message="claim or expression is required"
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || !has(self.expression)",message="claim and expression cannot both be specified"
// +kubebuilder:validation:XValidation:rule="!has(self.requiredValue) || has(self.claim)",message="requiredValue can only be specified when claim is specified"
// +kubebuilder:validation:XValidation:rule="!has(self.message) || has(self.expression)",message="message can only be specified when expression is specified"
type ClaimValidationRule struct {
	// Claim that is compared.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Claim string `json:"claim,omitempty"`
	// RequiredValue of the claim.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	RequiredValue string `json:"requiredValue,omitempty"`
	// Expression over claims that must be true.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Expression string `json:"expression,omitempty"`
	// Message when the expression is false.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Message string `json:"message,omitempty"`
}

// ClaimMappings turn claims into an identity.
type ClaimMappings struct {
	// Username of the identity.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.claim) || has(self.expression)",message="claim or expression is required"
	Username PrefixedClaimOrExpression `json:"username"`
	// Groups of the identity.
	//
	// +optional
	Groups *PrefixedClaimOrExpression `json:"groups,omitempty"`
	// UID of the identity.
	//
	// +optional
	UID *ClaimOrExpression `json:"uid,omitempty"`
	// Extra of the identity.
	//
	// +optional
	Extra []ExtraMapping `json:"extra,omitempty"`
}

// PrefixedClaimOrExpression is a claim behind a prefix, or a CEL expression. Without either it maps nothing.
//
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || !has(self.expression)",message="claim and expression cannot both be specified"
// +kubebuilder:validation:XValidation:rule="!has(self.prefix) || has(self.claim)",message="prefix can only be specified when claim is specified"
type PrefixedClaimOrExpression struct {
	// Claim that is taken.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Claim string `json:"claim,omitempty"`
	// Prefix of the value, so that identities of different issuers cannot be confused.
	//
	// +optional
	Prefix *string `json:"prefix,omitempty"`
	// Expression over claims.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Expression string `json:"expression,omitempty"`
}

// ClaimOrExpression is a claim or a CEL expression. Without either it maps nothing.
//
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || !has(self.expression)",message="claim and expression cannot both be specified"
type ClaimOrExpression struct {
	// Claim that is taken.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Claim string `json:"claim,omitempty"`
	// Expression over claims.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Expression string `json:"expression,omitempty"`
}

// ExtraMapping sets one key of an identity's extra.
type ExtraMapping struct {
	// Key is a path with a domain, in lower case.
	//
	// +required
	Key string `json:"key"`
	// ValueExpression over claims: a string or a list of strings.
	//
	// +required
	ValueExpression string `json:"valueExpression"`
}

// UserValidationRule is a condition on an identity.
type UserValidationRule struct {
	// Expression over user that must be true.
	//
	// +required
	Expression string `json:"expression"`
	// Message when the expression is false.
	//
	// +required
	Message string `json:"message"`
}

// WorkspaceAuthenticationConfigurationList is a list of WorkspaceAuthenticationConfigurations.
//
// +kubebuilder:object:root=true
type WorkspaceAuthenticationConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []WorkspaceAuthenticationConfiguration `json:"items"`
}
