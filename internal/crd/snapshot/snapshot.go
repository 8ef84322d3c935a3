// Package snapshot converts CustomResourceDefinitions to APIResourceSchemas, which APIExports refer to.
package snapshot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
)

var prefixes = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

// ValidatePrefix refuses invalid prefixes of schema names.
func ValidatePrefix(prefix string) error {
	if !prefixes.MatchString(prefix) {
		return fmt.Errorf("must be lower case letters, digits or dashes, start with a letter and end with a letter or digit, got %q", prefix)
	}
	return nil
}

// Name returns the name of the schema of a resource. The empty group is core.
func Name(prefix, plural, group string) string {
	return prefix + "." + plural + "." + cmp.Or(group, "core")
}

// Take converts a definition to a schema. It fails if a schema cannot express the definition.
func Take(definition *apiextensionsv1.CustomResourceDefinition, prefix string) (*apisv1alpha1.APIResourceSchema, error) {
	if err := ValidatePrefix(prefix); err != nil {
		return nil, err
	}
	spec := definition.Spec.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(spec)
	result := &apisv1alpha1.APIResourceSchema{
		TypeMeta:   metav1.TypeMeta{APIVersion: apisv1alpha1.SchemeGroupVersion.String(), Kind: "APIResourceSchema"},
		ObjectMeta: metav1.ObjectMeta{Name: Name(prefix, spec.Names.Plural, spec.Group)},
		Spec:       apisv1alpha1.APIResourceSchemaSpec{Group: spec.Group, Names: spec.Names, Scope: spec.Scope},
	}
	if approval, found := definition.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; found {
		result.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: approval}
	}
	if spec.PreserveUnknownFields {
		return nil, errors.New(
			"spec.preserveUnknownFields: true is not supported; set x-kubernetes-preserve-unknown-fields in the schema instead",
		)
	}
	for i := range spec.Versions {
		v, err := version(&spec.Versions[i])
		if err != nil {
			return nil, err
		}
		result.Spec.Versions = append(result.Spec.Versions, v)
	}
	var err error
	result.Spec.Conversion, err = conversion(spec)
	return result, err
}

func version(from *apiextensionsv1.CustomResourceDefinitionVersion) (apisv1alpha1.APIResourceVersion, error) {
	if from.Schema == nil || from.Schema.OpenAPIV3Schema == nil {
		return apisv1alpha1.APIResourceVersion{}, fmt.Errorf("version %s has no schema", from.Name)
	}
	schema, err := json.Marshal(from.Schema.OpenAPIV3Schema)
	return apisv1alpha1.APIResourceVersion{
		Name: from.Name, Served: from.Served, Storage: from.Storage,
		Deprecated: from.Deprecated, DeprecationWarning: from.DeprecationWarning,
		Schema:                   runtime.RawExtension{Raw: schema},
		Subresources:             ptr.Deref(from.Subresources, apiextensionsv1.CustomResourceSubresources{}),
		AdditionalPrinterColumns: from.AdditionalPrinterColumns,
		SelectableFields:         from.SelectableFields,
	}, err
}

// conversion returns nil if there is only one version and no webhook.
func conversion(spec *apiextensionsv1.CustomResourceDefinitionSpec) (*apisv1alpha1.CustomResourceConversion, error) {
	result := &apisv1alpha1.CustomResourceConversion{Strategy: apisv1alpha1.ConversionStrategy(spec.Conversion.Strategy)}
	if spec.Conversion.Strategy == apiextensionsv1.NoneConverter {
		if len(spec.Versions) < 2 {
			return nil, nil
		}
		return result, nil
	}
	webhook := spec.Conversion.Webhook
	if webhook == nil {
		return nil, fmt.Errorf("spec.conversion.webhook is required for the strategy %s", spec.Conversion.Strategy)
	}
	result.Webhook = &apisv1alpha1.WebhookConversion{ConversionReviewVersions: webhook.ConversionReviewVersions}
	if client := webhook.ClientConfig; client != nil {
		if client.Service != nil {
			return nil, fmt.Errorf("spec.conversion.webhook refers to the Service %s/%s, which other workspaces cannot reach; use a URL instead",
				client.Service.Namespace, client.Service.Name)
		}
		result.Webhook.ClientConfig = &apisv1alpha1.WebhookClientConfig{URL: ptr.Deref(client.URL, ""), CABundle: client.CABundle}
	}
	return result, nil
}

// Definition returns the definition that a schema describes, without webhooks.
func Definition(s *apisv1alpha1.APIResourceSchema) (*apiextensionsv1.CustomResourceDefinition, error) {
	d := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Spec.Names.Plural + "." + cmp.Or(s.Spec.Group, "core"), Annotations: s.Annotations},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: s.Spec.Group, Names: s.Spec.Names, Scope: s.Spec.Scope},
	}
	for i := range s.Spec.Versions {
		from := &s.Spec.Versions[i]
		schema := &apiextensionsv1.JSONSchemaProps{}
		if err := json.Unmarshal(from.Schema.Raw, schema); err != nil {
			return nil, fmt.Errorf("version %s: %w", from.Name, err)
		}
		d.Spec.Versions = append(d.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: from.Name, Served: from.Served, Storage: from.Storage, Deprecated: from.Deprecated, DeprecationWarning: from.DeprecationWarning,
			Schema:                   &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
			Subresources:             from.Subresources.DeepCopy(),
			AdditionalPrinterColumns: from.AdditionalPrinterColumns,
			SelectableFields:         from.SelectableFields,
		})
	}
	return d, nil
}
