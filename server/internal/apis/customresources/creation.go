package customresources

import (
	"context"
	"fmt"
	"maps"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kcplane/kcp/server/internal/apis/customresources/acceptance"
	"github.com/kcplane/kcp/server/internal/apis/customresources/limits"
)

// This file validates new objects of system definitions, such as Workspaces, in a fraction of upstream's time, which was a tenth of the
// processor time of creating a workspace, and a sixth of what it allocated.

// creation is upstream's strategy for creating objects, with a faster way to find that an object is valid. Upstream validates all
// others, and says what is wrong with them.
type creation struct {
	rest.RESTCreateStrategy
	accepted *acceptance.Schema
	// rest makes the checks that are not those of the schema.
	rest rest.RESTCreateStrategy
}

// Validate implements rest.RESTCreateStrategy.
func (c creation) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	if u, ok := obj.(*unstructured.Unstructured); ok && c.accepted.Accepts(u.Object) {
		return c.rest.Validate(ctx, obj)
	}
	return c.RESTCreateStrategy.Validate(ctx, obj)
}

// storages is the part of upstream's handler that has the storages of a definition.
type storages interface {
	GetCustomResourceListerCollectionDeleter(crd *apiextensionsv1.CustomResourceDefinition) (finalizer.ListerCollectionDeleter, error)
}

// acceptQuickly makes the handler of a definition use creation, for the version that is stored.
func acceptQuickly(handler storages, crd *apiextensionsv1.CustomResourceDefinition) error {
	stored, err := handler.GetCustomResourceListerCollectionDeleter(crd)
	if err != nil {
		return err
	}
	objects, ok := stored.(*customresource.REST)
	if !ok {
		return fmt.Errorf("unexpected storage of %s: %T", crd.Name, stored)
	}
	for _, v := range crd.Spec.Versions {
		if !v.Storage {
			continue
		}
		c, err := newCreation(objects.CreateStrategy, crd, v)
		if err != nil {
			return fmt.Errorf("schema of %s in version %s: %w", crd.Name, v.Name, err)
		}
		objects.CreateStrategy = c
	}
	return nil
}

// newCreation returns a strategy for a version without the subresource scale, of which upstream's strategy checks fields too.
func newCreation(upstream rest.RESTCreateStrategy, crd *apiextensionsv1.CustomResourceDefinition,
	v apiextensionsv1.CustomResourceDefinitionVersion) (rest.RESTCreateStrategy, error) {
	hasStatus := v.Subresources != nil && v.Subresources.Status != nil
	if v.Subresources != nil && v.Subresources.Scale != nil {
		return upstream, nil
	}
	structural, err := Structural(v.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	validated, err := limits.OpenAPI(v.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	if hasStatus { // upstream removes the status of a new object
		without := *structural
		without.Properties = maps.Clone(without.Properties)
		delete(without.Properties, "status")
		structural = &without
	}
	if !anywhere(structural, isCheckedOfNew) {
		structural = nil
	}
	kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}
	namespaced := crd.Spec.Scope == apiextensionsv1.NamespaceScoped
	others := customresource.NewStrategy(upstream, namespaced, kind, nil, nil, structural, nil, nil, nil)
	return creation{upstream, acceptance.New(validated), others}, nil
}

// isCheckedOfNew reports whether a schema has constraints of new values that upstream checks apart from the others: rules, unless they
// compare an object with its state before, the metadata of embedded objects, and keys of lists.
func isCheckedOfNew(s *structuralschema.Structural) bool {
	for _, rule := range s.XValidations {
		if !strings.Contains(rule.Rule, "oldSelf") || rule.OptionalOldSelf != nil && *rule.OptionalOldSelf {
			return true
		}
	}
	return s.XEmbeddedResource || s.XListType != nil && *s.XListType != "atomic"
}
