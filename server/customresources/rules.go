package customresources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/apiconversion"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file converts the objects of exported APIs by the rules of an APIConversion. As for system definitions, upstream's handler
// sees a webhook that is a function of this process; its URL ends with the hash of the rules, which makes them part of what tells
// definitions apart.

// definitionOf returns the definition that a schema stands for, with the rules of the APIConversion beside it, if there is one.
func (r *registry) definitionOf(s *apisv1alpha1.APIResourceSchema) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := DefinitionOf(s)
	if err != nil || len(crd.Spec.Versions) < 2 || crd.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		return crd, err
	}
	conversion, err := r.conversions.Get(logicalcluster.Of(s), "", s.Name)
	if apierrors.IsNotFound(err) {
		return crd, nil
	}
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(conversion.Spec)
	if err != nil {
		return nil, fmt.Errorf("APIConversion %s: %w", s.Name, err)
	}
	sum := sha256.Sum256(content)
	url := conversionURL + hex.EncodeToString(sum[:])
	convertAt(crd, url)
	r.mu.Lock()
	r.bound.rules[url] = &conversion.Spec
	r.mu.Unlock()
	return crd, nil
}

// rulesOf returns the rules that a definition names, nil if none.
func (r *registry) rulesOf(crd *apiextensionsv1.CustomResourceDefinition) *apisv1alpha1.APIConversionSpec {
	if c := crd.Spec.Conversion; c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil || c.Webhook.ClientConfig.URL == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.bound.rules[*crd.Spec.Conversion.Webhook.ClientConfig.URL]
}

// toRules is how the handler of a definition reaches the converter by rules, which is made when it is used first.
func toRules(crd *apiextensionsv1.CustomResourceDefinition, rules *apisv1alpha1.APIConversionSpec) webhook.AuthenticationInfoResolverWrapper {
	compiled := sync.OnceValues(func() (*apiconversion.Converter, error) {
		schemas, err := StructuralSchemas(crd)
		if err != nil {
			return nil, err
		}
		c, errs := apiconversion.Compile(rules, schemas, apiconversion.Options{})
		return c, errs.ToAggregate()
	})
	convert := converter(func(in *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
		c, err := compiled()
		if err != nil {
			return nil, fmt.Errorf("the APIConversion of %s: %w", crd.Name, err)
		}
		return c.Convert(context.Background(), in, to.Version)
	})
	return func(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(string) (*rest.Config, error) { return &rest.Config{Transport: convert}, nil },
		}
	}
}

// StructuralSchemas returns the schemas of a definition by version.
func StructuralSchemas(crd *apiextensionsv1.CustomResourceDefinition) (map[string]*structuralschema.Structural, error) {
	schemas := map[string]*structuralschema.Structural{}
	for _, v := range crd.Spec.Versions {
		internal := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, internal, nil); err != nil {
			return nil, fmt.Errorf("schema of version %s: %w", v.Name, err)
		}
		structural, err := structuralschema.NewStructural(internal)
		if err != nil {
			return nil, fmt.Errorf("schema of version %s: %w", v.Name, err)
		}
		schemas[v.Name] = structural
	}
	return schemas, nil
}
