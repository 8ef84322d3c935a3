package customresources

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/randfill"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources/limits"
	"github.com/kcplane/kcp/server/internal/informers"
)

// strategies returns, for the stored version of each system definition, the strategy of creations, and upstream's.
func strategies(t *testing.T) map[schema.GroupVersionKind]creation {
	t.Helper()
	all, err := SystemDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	found := map[schema.GroupVersionKind]creation{}
	for _, crd := range all {
		v := crd.Spec.Versions[slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })]
		validated, err := limits.OpenAPI(v.Schema.OpenAPIV3Schema)
		if err != nil {
			t.Fatal(err)
		}
		var status *apiextensions.CustomResourceSubresourceStatus
		if v.Subresources != nil && v.Subresources.Status != nil {
			status = &apiextensions.CustomResourceSubresourceStatus{}
		}
		kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}
		upstream := customresource.NewStrategy(runtime.NewScheme(), crd.Spec.Scope == apiextensionsv1.NamespaceScoped, kind,
			apiservervalidation.NewSchemaValidatorFromOpenAPI(validated), nil, structuralOf(t, crd, v.Name), status, nil, nil)
		made, err := newCreation(upstream, crd, v)
		if err != nil {
			t.Fatal(err)
		}
		found[kind] = made.(creation)
	}
	return found
}

// equalErrors compares what two strategies say about an object, in the order in which it is created.
func (c creation) equalErrors(t *testing.T, content map[string]any) (valid bool) {
	t.Helper()
	say := func(s rest.RESTCreateStrategy) field.ErrorList {
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
		s.PrepareForCreate(t.Context(), u)
		errs := s.Validate(t.Context(), u)
		slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
		return errs
	}
	own, upstream := say(c), say(c.RESTCreateStrategy)
	if !reflect.DeepEqual(own, upstream) {
		t.Fatalf("of %v:\n%v\nupstream says:\n%v", content, own, upstream)
	}
	return len(upstream) == 0
}

func TestCreationsAreValidatedAsUpstreamDoes(t *testing.T) {
	words := []string{"a", "root:org", "Ready", "universal", "Wrong Name", "example.org", "v1", "widgets"}
	fill := randfill.NewWithSeed(1).NilChance(0.5).NumElements(1, 2).MaxDepth(9).Funcs(
		func(s *string, c randfill.Continue) { *s = words[c.Intn(len(words))] },
		func(raw *runtime.RawExtension, _ randfill.Continue) { raw.Raw = []byte(`{"type":"object"}`) },
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			m.Name = words[c.Intn(len(words))]
			m.Labels = map[string]string{"a": words[c.Intn(len(words))]}
		},
	)
	examples := map[schema.GroupVersionKind]runtime.Object{}
	for _, k := range informers.Kinds() {
		examples[k.Resource.GroupVersion().WithKind(reflect.TypeOf(k.Example).Elem().Name())] = k.Example
	}
	for kind, c := range strategies(t) {
		if examples[kind] == nil {
			t.Fatalf("%s has no example", kind)
		}
		valid := 0
		for range 200 {
			obj := examples[kind].DeepCopyObject()
			fill.Fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(kind)
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			if err != nil {
				t.Fatal(err)
			}
			if c.equalErrors(t, content) {
				valid++
			}
		}
		t.Logf("%s: %d of 200 are valid", kind.Kind, valid)
	}
}

func TestWorkspacesAreAcceptedQuickly(t *testing.T) {
	c := strategies(t)[tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace")]
	object := func(name string, spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name}, "spec": spec}
	}
	universal := map[string]any{"name": "universal", "path": "root"}
	for _, of := range []struct {
		name  string
		spec  map[string]any
		valid bool
	}{
		{"team", map[string]any{"type": universal}, true},
		{"team", map[string]any{"location": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"region": "east"}}}}, true},
		{"Team", map[string]any{"type": universal}, false},
		{"team", map[string]any{"type": map[string]any{"path": "root"}}, false},
		{"team", map[string]any{"type": map[string]any{"name": "Universal"}}, false},
		{"team", nil, false},
	} {
		content := object(of.name, of.spec)
		if of.spec == nil {
			delete(content, "spec")
		}
		if valid := c.equalErrors(t, content); valid != of.valid {
			t.Errorf("%v: valid is %t", content, valid)
		}
		if accepted := c.accepted.Accepts(content); of.valid && !accepted {
			t.Errorf("%v: upstream is asked", content)
		}
	}
}

func TestSystemDefinitionsAcceptQuickly(t *testing.T) {
	s := newShard(t)
	for key, d := range s.registry.system {
		handler, err := d.compiled()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := handler.(mediaTypes).inner.(storages).GetCustomResourceListerCollectionDeleter(d.CRD)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := stored.(*customresource.REST).CreateStrategy.(creation); !ok {
			t.Errorf("%s: %T", key, stored.(*customresource.REST).CreateStrategy)
		}
	}
}
