package customresources

import (
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/utils/ptr"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
)

// DefinitionOf returns the definition of a schema, established and with defaults, under the name <plural>.<group>.
func DefinitionOf(schema *apisv1alpha1.APIResourceSchema) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: schema.Spec.Group, Names: schema.Spec.Names, Scope: schema.Spec.Scope,
	}}
	crd.Name = ResourceName(schema.Spec.Names.Plural, schema.Spec.Group)
	for _, v := range schema.Spec.Versions {
		properties := &apiextensionsv1.JSONSchemaProps{}
		if err := json.Unmarshal(v.Schema.Raw, properties); err != nil {
			return nil, fmt.Errorf("schema %s, version %s: %w", schema.Name, v.Name, err)
		}
		version := apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v.Name, Served: v.Served, Storage: v.Storage, Deprecated: v.Deprecated, DeprecationWarning: v.DeprecationWarning,
			Schema:                   &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: properties},
			AdditionalPrinterColumns: v.AdditionalPrinterColumns, SelectableFields: v.SelectableFields,
		}
		if v.Subresources.Status != nil || v.Subresources.Scale != nil {
			version.Subresources = &v.Subresources
		}
		crd.Spec.Versions = append(crd.Spec.Versions, version)
	}
	if c := schema.Spec.Conversion; c != nil {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.ConversionStrategyType(c.Strategy)}
		if w := c.Webhook; w != nil {
			crd.Spec.Conversion.Webhook = &apiextensionsv1.WebhookConversion{ConversionReviewVersions: w.ConversionReviewVersions}
			if w.ClientConfig != nil {
				crd.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: ptr.To(w.ClientConfig.URL),
					CABundle: w.ClientConfig.CABundle}
			}
		}
	}
	apiextensionsapiserver.Scheme.Default(crd)
	crd.Status.AcceptedNames = crd.Spec.Names
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established,
		Status: apiextensionsv1.ConditionTrue}}
	return crd, nil
}
