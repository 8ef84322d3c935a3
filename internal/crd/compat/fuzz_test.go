package compat

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/internal/crd"
)

// server handles objects of one definition like an API server.
type server struct {
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
}

func newServer(t testing.TB, definition *apiextensionsv1.CustomResourceDefinition) server {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	root := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(root, internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	values, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	return server{structural, values, cel.NewValidator(structural, true, math.MaxInt64)}
}

// admit returns the object to store, the pruned fields, and the validation errors.
func (s server) admit(t testing.TB, object map[string]any) (stored map[string]any, pruned []string, err error) {
	t.Helper()
	stored = runtime.DeepCopyJSON(object)
	pruned = pruning.PruneWithOptions(stored, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(stored, s.structural)
	defaulting.Default(stored, s.structural)
	if coercion, _ := objectmeta.CoerceWithOptions(nil, stored, s.structural, true, objectmeta.CoerceOptions{}); coercion != nil {
		return stored, pruned, coercion
	}
	errs := validation.ValidateCustomResource(nil, stored, s.values)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, stored)...)
	errs = append(errs, objectmeta.Validate(t.Context(), nil, stored, s.structural, true)...)
	if len(errs) == 0 && s.rules != nil {
		errs, _ = s.rules.Validate(t.Context(), nil, s.structural, stored, nil, math.MaxInt64)
	}
	return stored, pruned, errs.ToAggregate()
}

// tally counts the cases, to prove that the test covers enough.
type tally struct{ pairs, denominators, compatible, objects int }

// try generates two definitions and objects from a seed, and checks all guarantees of a comparison.
func (n *tally) try(t *testing.T, seed uint64) {
	r := random{rand.New(rand.NewPCG(seed, 0))}
	one := r.schema(3)
	other := r.changed(one, 3)
	if r.maybe(8) {
		other = r.schema(3)
	}
	existing, updated := definitionOf(t, one), definitionOf(t, other)
	if len(crd.Problems(existing)) > 0 || len(crd.Problems(updated)) > 0 {
		return // invalid definition
	}
	n.pairs++
	result, err := Compare(existing, updated, Options{})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	first, second := newServer(t, existing), newServer(t, updated)
	different, err := CompareObjects(existing, updated, "v1")
	if err != nil || (len(result.Findings) == 0 && len(different) > 0) {
		t.Fatalf("seed %d: the definitions are compatible, but not their objects: %v: %v", seed, different, err)
	}
	if len(different) == 0 {
		n.compatible++
		for range 10 {
			object := r.widget(&one)
			stored, _, err := first.admit(t, object)
			if err != nil {
				continue
			}
			n.objects++
			if _, pruned, err := second.admit(t, stored); err != nil || len(pruned) > 0 {
				t.Fatalf("seed %d: no finding, but an object is valid only under the existing definition: %v, pruned: %v\n%s",
					seed, err, pruned, describe(existing, updated, stored))
			}
		}
	}
	if result.LCD == nil {
		return
	}
	n.denominators++
	for i, definition := range []*apiextensionsv1.CustomResourceDefinition{existing, updated} {
		again, err := Compare(result.LCD, definition, Options{})
		for _, f := range again.Findings {
			if !strings.HasPrefix(f.Message, "default ") { // objects have default values explicitly
				t.Fatalf("seed %d: the least common denominator is not compatible with definition %d: %s\n%s", seed, i, f, describe(existing, updated, result.LCD))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	common := newServer(t, result.LCD)
	for range 20 {
		schemas := []schema{specOf(result.LCD), one, other}
		object := r.widget(&schemas[min(r.IntN(4), 2)])
		stored, _, err := common.admit(t, object)
		if err != nil {
			continue
		}
		n.objects++
		for i, s := range []server{first, second} {
			if _, pruned, err := s.admit(t, stored); err != nil || len(pruned) > 0 {
				t.Fatalf("seed %d: valid under the least common denominator, but not under definition %d: %v, pruned: %v\n%s",
					seed, i, err, pruned, describe(existing, updated, result.LCD, stored))
			}
		}
	}
}

func definitionOf(t testing.TB, spec schema) *apiextensionsv1.CustomResourceDefinition {
	definition := widgets(t, "{type: string}")
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	return definition
}

// widget returns an object.
func (r random) widget(spec *schema) map[string]any {
	return map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "x"}, "spec": r.value(spec, 3)}
}

func describe(things ...any) string {
	text := ""
	for _, thing := range things {
		if d, ok := thing.(*apiextensionsv1.CustomResourceDefinition); ok {
			thing = specOf(d)
		}
		content, err := json.Marshal(thing)
		if err == nil {
			content, err = yaml.JSONToYAML(content)
		}
		text += fmt.Sprintf("---\n%s%v", content, err)
	}
	return text
}

func TestLeastCommonDenominatorIsValidUnderBoth(t *testing.T) {
	const seeds = 800
	var n tally
	for seed := range uint64(seeds) {
		n.try(t, seed)
	}
	t.Logf("%+v", n)
	if n.pairs < seeds/4 || n.denominators < seeds/10 || n.compatible < seeds/40 || n.objects < seeds {
		t.Errorf("too few cases: %+v", n)
	}
}

func FuzzCompare(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { new(tally).try(t, seed) })
}
