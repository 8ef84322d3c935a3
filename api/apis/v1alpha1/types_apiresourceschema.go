package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// APIResourceSchema is the definition of a resource that an APIExport can offer. Its name is <prefix>.<plural>.<group>, with
// core for the empty group. Its spec never changes: a new definition is a new APIResourceSchema.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type APIResourceSchema struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec APIResourceSchemaSpec `json:"spec,omitempty"`
}

// NameValidation is what names of objects must be.
//
// +kubebuilder:validation:Enum=DNS1123Subdomain;PathSegmentName
type NameValidation string

// The kinds of names.
const (
	NameValidationDNS1123Subdomain NameValidation = "DNS1123Subdomain"
	NameValidationPathSegmentName  NameValidation = "PathSegmentName"
)

// APIResourceSchemaSpec is the definition of the resource.
//
// +kubebuilder:validation:XValidation:rule="size(self.versions) <= 1 || has(self.conversion)",message="conversion must be set when there is more than one version"
type APIResourceSchemaSpec struct {
	// Group of the resource. Empty is the core group.
	//
	// +required
	Group string `json:"group"`
	// Names of the resource and of its kind.
	//
	// +required
	Names apiextensionsv1.CustomResourceDefinitionNames `json:"names"`
	// Scope is Cluster or Namespaced.
	//
	// +required
	// +kubebuilder:validation:Enum=Cluster;Namespaced
	Scope apiextensionsv1.ResourceScope `json:"scope"`
	// NameValidation is what names of objects must be.
	//
	// +optional
	// +kubebuilder:default:=DNS1123Subdomain
	NameValidation NameValidation `json:"nameValidation,omitempty"`
	// Versions of the resource. One of them is the storage version.
	//
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems:=1
	Versions []APIResourceVersion `json:"versions"`
	// Conversion between versions.
	//
	// +optional
	Conversion *CustomResourceConversion `json:"conversion,omitempty"`
}

// APIResourceVersion is one version of a resource.
type APIResourceVersion struct {
	// Name of the version, for example v1 or v2beta1.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Pattern:=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	Name string `json:"name"`
	// Served makes the version available to clients.
	//
	// +required
	// +kubebuilder:default:=true
	Served bool `json:"served"`
	// Storage makes this the version in which objects are stored. Exactly one version is.
	//
	// +required
	Storage bool `json:"storage"`
	// Deprecated makes the server warn whoever uses the version.
	//
	// +optional
	Deprecated bool `json:"deprecated,omitempty"`
	// DeprecationWarning replaces the text of the warning.
	//
	// +optional
	DeprecationWarning *string `json:"deprecationWarning,omitempty"`
	// Schema of the objects: a structural OpenAPI v3 schema, as in a CustomResourceDefinition.
	//
	// +required
	// +structType=atomic
	// +kubebuilder:pruning:PreserveUnknownFields
	Schema runtime.RawExtension `json:"schema"`
	// Subresources of the objects.
	//
	// +optional
	Subresources apiextensionsv1.CustomResourceSubresources `json:"subresources,omitempty,omitzero"`
	// AdditionalPrinterColumns are the columns of tables. Without any there is the age.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	AdditionalPrinterColumns []apiextensionsv1.CustomResourceColumnDefinition `json:"additionalPrinterColumns,omitempty"`
	// SelectableFields are those that field selectors may name, 8 at the most.
	//
	// +optional
	// +listType=atomic
	SelectableFields []apiextensionsv1.SelectableField `json:"selectableFields,omitempty"`
}

// ConversionStrategy is how objects are converted between versions.
//
// +kubebuilder:validation:Enum=None;Webhook
type ConversionStrategy string

// The strategies. The first changes nothing but apiVersion.
const (
	ConversionStrategyNone    ConversionStrategy = "None"
	ConversionStrategyWebhook ConversionStrategy = "Webhook"
)

// CustomResourceConversion is how objects are converted between versions.
//
// +kubebuilder:validation:XValidation:rule="(self.strategy == 'Webhook') == has(self.webhook)",message="webhook must be set if and only if the strategy is Webhook"
type CustomResourceConversion struct {
	// Strategy is None or Webhook.
	//
	// +required
	Strategy ConversionStrategy `json:"strategy"`
	// Webhook that converts.
	//
	// +optional
	Webhook *WebhookConversion `json:"webhook,omitempty"`
}

// WebhookConversion is a webhook that converts objects between versions.
type WebhookConversion struct {
	// ClientConfig is how to reach the webhook.
	//
	// +optional
	ClientConfig *WebhookClientConfig `json:"clientConfig,omitempty"`
	// ConversionReviewVersions are the versions of ConversionReview that the webhook understands, the preferred one first.
	//
	// +required
	// +listType=atomic
	ConversionReviewVersions []string `json:"conversionReviewVersions"`
}

// WebhookClientConfig is how to reach a webhook. There is no reference to a Service: the workspaces that use a resource
// have no network in common with the one that provides it.
type WebhookClientConfig struct {
	// URL of the webhook.
	//
	// +optional
	// +kubebuilder:validation:Format:=uri
	URL string `json:"url,omitempty"`
	// CABundle is what the certificate of the webhook is verified with, in PEM. By default the roots of the system.
	//
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
}

// APIResourceSchemaList is a list of APIResourceSchemas.
//
// +kubebuilder:object:root=true
type APIResourceSchemaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []APIResourceSchema `json:"items"`
}
