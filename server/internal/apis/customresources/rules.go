package customresources

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/apiconversion"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file converts the objects of exported APIs by the rules of an APIConversion. As for system definitions, the webhook of
// upstream's handler is a function of this process.

// definitionOf returns the definition of a schema, with the rules of its APIConversion if it has one.
func (r *registry) definitionOf(s *apisv1alpha1.APIResourceSchema) (*apiextensionsv1.CustomResourceDefinition,
	*apisv1alpha1.APIConversionSpec, error) {
	crd, err := DefinitionOf(s)
	if err != nil || len(crd.Spec.Versions) < 2 || crd.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		return crd, nil, err
	}
	conversion, err := r.conversions.Get(logicalcluster.Of(s), "", s.Name)
	if apierrors.IsNotFound(err) {
		return crd, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	convertHere(crd)
	return crd, &conversion.Spec, nil
}

// byRules returns the converter of the objects of a definition. The rules are compiled on first use.
func byRules(crd *apiextensionsv1.CustomResourceDefinition, rules *apisv1alpha1.APIConversionSpec) converter {
	compiled := sync.OnceValues(func() (*apiconversion.Converter, error) {
		schemas, err := StructuralSchemas(crd)
		if err != nil {
			return nil, err
		}
		c, errs := apiconversion.Compile(rules, schemas, apiconversion.Options{})
		return c, errs.ToAggregate()
	})
	return func(ctx context.Context, in *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
		c, err := compiled()
		if err != nil {
			return nil, fmt.Errorf("the APIConversion of %s: %w", crd.Name, err)
		}
		return c.Convert(ctx, in, to.Version)
	}
}

// StructuralSchemas returns the schemas of a definition by version.
func StructuralSchemas(crd *apiextensionsv1.CustomResourceDefinition) (map[string]*structuralschema.Structural, error) {
	schemas := map[string]*structuralschema.Structural{}
	for _, v := range crd.Spec.Versions {
		structural, err := Structural(v.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, fmt.Errorf("schema of version %s: %w", v.Name, err)
		}
		schemas[v.Name] = structural
	}
	return schemas, nil
}

// Structural returns the structural schema of a schema, or an error if it has none.
func Structural(schema *apiextensionsv1.JSONSchemaProps) (*structuralschema.Structural, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil); err != nil {
		return nil, err
	}
	return structuralschema.NewStructural(internal)
}
