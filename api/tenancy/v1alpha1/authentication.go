package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkspaceAuthenticationConfiguration lists OpenID Connect issuers whose users may authenticate in workspaces of a type.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
type WorkspaceAuthenticationConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec WorkspaceAuthenticationConfigurationSpec `json:"spec"`
}

// WorkspaceAuthenticationConfigurationSpec is a subset of the AuthenticationConfiguration of a kube-apiserver.
type WorkspaceAuthenticationConfigurationSpec struct {
	// JWT lists the issuers.
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
	// ClaimValidationRules are conditions that the claims of a token must meet.
	//
	// +optional
	ClaimValidationRules []ClaimValidationRule `json:"claimValidationRules,omitempty"`
	// ClaimMappings map claims to a user.
	//
	// +required
	ClaimMappings ClaimMappings `json:"claimMappings"`
	// UserValidationRules are conditions that the user must meet.
	//
	// +optional
	UserValidationRules []UserValidationRule `json:"userValidationRules,omitempty"`
}

// AudienceMatchPolicy defines how audiences are compared.
type AudienceMatchPolicy string

// AudienceMatchPolicyMatchAny accepts a token with any of several audiences.
const AudienceMatchPolicyMatchAny AudienceMatchPolicy = "MatchAny"

// Issuer is an OpenID Connect provider.
type Issuer struct {
	// URL of the issuer, which is the value of the claim iss.
	//
	// +required
	URL string `json:"url"`
	// DiscoveryURL is the URL of the discovery document, if it is not below the URL of the issuer.
	//
	// +optional
	DiscoveryURL string `json:"discoveryURL,omitempty"`
	// CertificateAuthority is the PEM-encoded certificate authority of the issuer. Defaults to those of the system.
	//
	// +optional
	CertificateAuthority string `json:"certificateAuthority,omitempty"`
	// Audiences that the server accepts in tokens.
	//
	// +optional
	Audiences []string `json:"audiences,omitempty"`
	// AudienceMatchPolicy must be MatchAny if there is more than one audience.
	//
	// +optional
	AudienceMatchPolicy AudienceMatchPolicy `json:"audienceMatchPolicy,omitempty"`
}

// ClaimValidationRule requires a value of a claim, or that a CEL expression is true.
//
// +kubebuilder:validation:XValidation:rule="has(self.claim) || has(self.expression)",message="claim or expression is required"
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || !has(self.expression)",message="claim and expression cannot both be specified"
// +kubebuilder:validation:XValidation:rule="!has(self.requiredValue) || has(self.claim)",message="requiredValue can only be specified when claim is specified"
// +kubebuilder:validation:XValidation:rule="!has(self.message) || has(self.expression)",message="message can only be specified when expression is specified"
type ClaimValidationRule struct {
	// Claim to validate.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Claim string `json:"claim,omitempty"`
	// RequiredValue of the claim.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	RequiredValue string `json:"requiredValue,omitempty"`
	// Expression is a CEL expression over claims that must be true.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Expression string `json:"expression,omitempty"`
	// Message if the expression is false.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Message string `json:"message,omitempty"`
}

// ClaimMappings map claims to a user.
type ClaimMappings struct {
	// Username of the user.
	//
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.claim) || has(self.expression)",message="claim or expression is required"
	Username PrefixedClaimOrExpression `json:"username"`
	// Groups of the user.
	//
	// +optional
	Groups *PrefixedClaimOrExpression `json:"groups,omitempty"`
	// UID of the user.
	//
	// +optional
	UID *ClaimOrExpression `json:"uid,omitempty"`
	// Extra attributes of the user.
	//
	// +optional
	Extra []ExtraMapping `json:"extra,omitempty"`
}

// PrefixedClaimOrExpression is a claim with a prefix, or a CEL expression. If neither is set, the attribute stays empty.
//
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || !has(self.expression)",message="claim and expression cannot both be specified"
// +kubebuilder:validation:XValidation:rule="!has(self.prefix) || has(self.claim)",message="prefix can only be specified when claim is specified"
type PrefixedClaimOrExpression struct {
	// Claim with the value.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Claim string `json:"claim,omitempty"`
	// Prefix of the value, to distinguish the users of different issuers.
	//
	// +optional
	Prefix *string `json:"prefix,omitempty"`
	// Expression is a CEL expression over claims.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Expression string `json:"expression,omitempty"`
}

// ClaimOrExpression is a claim or a CEL expression. If neither is set, the attribute stays empty.
//
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || !has(self.expression)",message="claim and expression cannot both be specified"
type ClaimOrExpression struct {
	// Claim with the value.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Claim string `json:"claim,omitempty"`
	// Expression is a CEL expression over claims.
	//
	// +optional
	// +kubebuilder:validation:MinLength:=1
	Expression string `json:"expression,omitempty"`
}

// ExtraMapping sets one extra attribute of the user.
type ExtraMapping struct {
	// Key is a path with a domain prefix, in lower case.
	//
	// +required
	Key string `json:"key"`
	// ValueExpression is a CEL expression over claims that returns a string or a list of strings.
	//
	// +required
	ValueExpression string `json:"valueExpression"`
}

// UserValidationRule is a condition that the user must meet.
type UserValidationRule struct {
	// Expression is a CEL expression over user that must be true.
	//
	// +required
	Expression string `json:"expression"`
	// Message if the expression is false.
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
