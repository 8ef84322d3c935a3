package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// APIResourceSchema is the definition of a resource that an APIExport can offer. Its name is <prefix>.<plural>.<group>, with
// core for the empty group. Its spec is immutable: create a new APIResourceSchema for a new definition.
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

// NameValidation is the format of object names.
//
// +kubebuilder:validation:Enum=DNS1123Subdomain;PathSegmentName
type NameValidation string

// Formats of object names.
const (
	NameValidationDNS1123Subdomain NameValidation = "DNS1123Subdomain"
	NameValidationPathSegmentName  NameValidation = "PathSegmentName"
)

// APIResourceSchemaSpec is the definition of a resource.
//
// +kubebuilder:validation:XValidation:rule="size(self.versions) <= 1 || has(self.conversion)",message="conversion must be set when there is more than one version"
type APIResourceSchemaSpec struct {
	// Group of the resource. The empty string is the core group.
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
	// NameValidation is the format of object names.
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
	// Storage marks the version in which objects are stored. Exactly one version must be the storage version.
	//
	// +required
	Storage bool `json:"storage"`
	// Deprecated makes the server send a warning to clients of the version.
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
	// AdditionalPrinterColumns are the columns of tables. Defaults to the age.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	AdditionalPrinterColumns []apiextensionsv1.CustomResourceColumnDefinition `json:"additionalPrinterColumns,omitempty"`
	// SelectableFields are the fields that field selectors support, at most 8.
	//
	// +optional
	// +listType=atomic
	SelectableFields []apiextensionsv1.SelectableField `json:"selectableFields,omitempty"`
}

// ConversionStrategy is the strategy to convert objects between versions.
//
// +kubebuilder:validation:Enum=None;Webhook
type ConversionStrategy string

// Conversion strategies. None changes only apiVersion.
const (
	ConversionStrategyNone    ConversionStrategy = "None"
	ConversionStrategyWebhook ConversionStrategy = "Webhook"
)

// CustomResourceConversion defines the conversion of objects between versions.
//
// +kubebuilder:validation:XValidation:rule="(self.strategy == 'Webhook') == has(self.webhook)",message="webhook must be set if and only if the strategy is Webhook"
type CustomResourceConversion struct {
	// Strategy is None or Webhook.
	//
	// +required
	Strategy ConversionStrategy `json:"strategy"`
	// Webhook that converts objects.
	//
	// +optional
	Webhook *WebhookConversion `json:"webhook,omitempty"`
}

// WebhookConversion is a webhook that converts objects between versions.
type WebhookConversion struct {
	// ClientConfig to connect to the webhook.
	//
	// +optional
	ClientConfig *WebhookClientConfig `json:"clientConfig,omitempty"`
	// ConversionReviewVersions are the versions of ConversionReview that the webhook supports, in order of preference.
	//
	// +required
	// +listType=atomic
	ConversionReviewVersions []string `json:"conversionReviewVersions"`
}

// WebhookClientConfig is the configuration to connect to a webhook. References to a Service are not supported, because workspaces do not
// share a network.
type WebhookClientConfig struct {
	// URL of the webhook.
	//
	// +optional
	// +kubebuilder:validation:Format:=uri
	URL string `json:"url,omitempty"`
	// CABundle is the PEM-encoded certificate authority of the webhook. Defaults to those of the system.
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
