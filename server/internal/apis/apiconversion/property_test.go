package apiconversion

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
)

// world generates random schemas, objects and rules.
type world struct{ *rand.Rand }

var fieldNames = []string{"a", "b", "c", "d", "e.f"}

func ofType(name string) structuralschema.Structural {
	return structuralschema.Structural{Generic: structuralschema.Generic{Type: name}}
}

func (w world) schema(depth int) structuralschema.Structural {
	var s structuralschema.Structural
	switch kind := w.IntN(12); {
	case kind < 3:
		s = ofType("string")
	case kind < 5:
		s = ofType("integer")
	case kind == 5:
		s = ofType("number")
	case kind == 6:
		s = ofType("boolean")
	case kind == 7:
		s.XIntOrString = true
	case depth == 0:
		s = ofType("string")
	case kind == 8:
		s = ofType("array")
		items := w.schema(depth - 1)
		s.Items = &items
		if _, keyed := items.Properties["a"]; keyed && w.IntN(2) == 0 {
			s.XListType, s.XListMapKeys = ptr.To("map"), []string{"a"}
		}
	case kind == 9:
		s = ofType("object")
		values := w.schema(depth - 1)
		s.AdditionalProperties = &structuralschema.StructuralOrBool{Structural: &values}
	default:
		s = w.object(depth - 1)
	}
	s.Nullable = w.IntN(10) == 0
	return s
}

func (w world) object(depth int) structuralschema.Structural {
	s := ofType("object")
	s.Properties = map[string]structuralschema.Structural{}
	for _, name := range fieldNames {
		if w.IntN(3) > 0 {
			s.Properties[name] = w.schema(depth)
		}
	}
	return s
}

func (w world) value(s *structuralschema.Structural) any {
	if s.Nullable && w.IntN(3) == 0 {
		return nil
	}
	if s.XIntOrString {
		return []any{"7", int64(7)}[w.IntN(2)]
	}
	switch s.Type {
	case "string":
		return []string{"", "x", "Xx", "7"}[w.IntN(4)]
	case "integer":
		return w.Int64N(7) - 3
	case "number":
		return []any{int64(2), 0.5, -1.25}[w.IntN(3)]
	case "boolean":
		return w.IntN(2) == 0
	case "array":
		list := []any{}
		for range w.IntN(3) {
			list = append(list, w.value(s.Items))
		}
		return list
	}
	object := map[string]any{}
	for _, name := range fieldNames {
		if fieldSchema := child(newShape(s), name); fieldSchema != nil && w.IntN(3) > 0 {
			object[name] = w.value(fieldSchema.Structural)
		}
	}
	return object
}

var expressions = []string{
	"self", "self.upperAscii()", "self.lowerAscii()", "self + 'x'", "string(self)", "'constant'", "self.size()", "string(self.size())",
	"self + 1", "self / 2", "self * 2", "self ? 1 : 0", "!self", "self > 0", "double(self)", "int(self)", "[self]", "self[0]", "self + self",
	"self.size() > 1 ? optional.of(self) : optional.none()", "has(self.a) ? 'yes' : 'no'", "has(self.b) ? optional.of(self.b) : optional.none()",
	"has(self.a) && has(self.b) ? optional.of(string(self.a) + string(self.b)) : optional.none()", "{'a': self}", "self == self",
}

// rules returns rules that compile, with arbitrary effects: the two directions are independent of each other.
func (w world) rules(source, target *structuralschema.Structural) []apisv1alpha1.APIConversionRule {
	var rules []apisv1alpha1.APIConversionRule
	fields, destinations := pathsIn(source), pathsIn(target)
	for range 12 {
		if len(fields) == 0 || len(destinations) == 0 {
			break
		}
		rule := apisv1alpha1.APIConversionRule{Field: fields[w.IntN(len(fields))].String(), Destination: destinations[w.IntN(len(destinations))].String()}
		if w.IntN(3) > 0 {
			rule.Transformation = expressions[w.IntN(len(expressions))]
		}
		c := &conversion{pair: pair{"from", "to"}, source: newShape(source), target: newShape(target)}
		if errs := c.compile(&apisv1alpha1.APIVersionConversion{Rules: append(rules, rule)}, "StoredExpressions", nil); len(errs) == 0 {
			rules = append(rules, rule)
		}
	}
	return rules
}

// pathsIn returns all paths below the root that rules can use.
func pathsIn(schema *structuralschema.Structural) []Path {
	var all []Path
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		all = append(all, Path{name})
		for _, below := range pathsIn(&property) {
			all = append(all, Path{name}.join(below...))
		}
	}
	return all
}

func (w world) widget(version string, schema *structuralschema.Structural) *unstructured.Unstructured {
	object := w.value(schema).(map[string]any)
	object["apiVersion"], object["kind"], object["metadata"] = "example.io/"+version, "Widget", map[string]any{"name": "w"}
	return &unstructured.Unstructured{Object: object}
}

// edit replaces some of the fields.
func (w world) edit(obj *unstructured.Unstructured, schema *structuralschema.Structural) {
	for name, value := range withoutMeta(w.widget("v0", schema).Object) {
		if w.IntN(3) == 0 {
			obj.Object[name] = value
		} else if w.IntN(8) == 0 {
			delete(obj.Object, name)
		}
	}
}

// Whatever the schemas and rules, an object that is converted to another version and back is unchanged, even if it is
// edited in one version and the other in turn, with what both keep of each other.
func TestRoundTripsAreLossless(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := world{rand.New(rand.NewPCG(seed, 7))}
			one, two := w.object(2), w.object(2)
			w.backAndForth(t, &one, &two, between(w.rules(&one, &two), w.rules(&two, &one)), nil)
		})
	}
}

// If the rules of the two directions match, edits in one version do not change other fields in the other version.
func TestEditsDoNotChangeOtherFields(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := world{rand.New(rand.NewPCG(seed, 11))}
			one, two := w.object(2), w.object(2)
			spec := w.matchingRules(&one, &two)
			w.backAndForth(t, &one, &two, spec, func(version string, before, after map[string]any) {
				schema, other := &one, &two
				if version == "v2" {
					schema, other = other, schema
				}
				for _, name := range untouched(spec, schema, other) {
					if !equal(before[name], after[name]) {
						t.Fatalf("field %s was %v, and is %v; rules: %s", name, before[name], after[name], inJSON(spec))
					}
				}
			})
		})
	}
}

// matchingRules returns rules that rename fields, or double numbers, and do the opposite in the other direction.
func (w world) matchingRules(one, two *structuralschema.Structural) *apisv1alpha1.APIConversionSpec {
	var there, back []apisv1alpha1.APIConversionRule
	left, right := pathsIn(one), pathsIn(two)
	w.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	w.Shuffle(len(right), func(i, j int) { right[i], right[j] = right[j], right[i] })
	taken := func(path Path, by func(apisv1alpha1.APIConversionRule) string, rules []apisv1alpha1.APIConversionRule) bool {
		return slices.ContainsFunc(rules, func(rule apisv1alpha1.APIConversionRule) bool {
			other, _ := ParsePath(by(rule))
			return path.overlaps(other)
		})
	}
	for _, from := range left {
		for _, to := range right {
			a, b := lookup(newShape(one), from), lookup(newShape(two), to)
			field, destination := func(r apisv1alpha1.APIConversionRule) string { return r.Field }, func(r apisv1alpha1.APIConversionRule) string { return r.Destination }
			if a.Type != b.Type || !moves(a, b) || taken(from, field, there) || taken(to, destination, there) || len(there) > 4 {
				continue
			}
			forth := apisv1alpha1.APIConversionRule{Field: from.String(), Destination: to.String()}
			opposite := apisv1alpha1.APIConversionRule{Field: to.String(), Destination: from.String()}
			if a.Type == "integer" && w.IntN(2) == 0 {
				forth.Transformation, opposite.Transformation = "self / 2", "self * 2"
			}
			there, back = append(there, forth), append(back, opposite)
		}
	}
	return between(there, back)
}

// backAndForth converts an object back and forth and edits it in between. What is called with an object from before the
// edits in the other version and after them may be nil.
func (w world) backAndForth(t *testing.T, one, two *structuralschema.Structural, spec *apisv1alpha1.APIConversionSpec, edited func(version string, before, after map[string]any)) {
	schemas := map[string]*structuralschema.Structural{"v1": one, "v2": two}
	converter, errs := Compile(spec, schemas, Options{Timeout: time.Minute})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	version, other := "v1", "v2"
	obj := w.widget(version, one)
	for range 4 {
		there, err := converter.Convert(context.Background(), obj, other)
		if err != nil {
			return // a rule that fails for the object, like self[0] of an empty list
		}
		back, err := converter.Convert(context.Background(), there, version)
		if err != nil {
			return
		}
		if !equal(withoutMeta(obj.Object), withoutMeta(back.Object)) {
			t.Fatalf("%s to %s and back (-want +got):\n%s\nin %s: %s\nrules: %s", version, other,
				cmp.Diff(obj, back), other, inJSON(there), inJSON(spec))
		}
		w.edit(there, schemas[other])
		if back, err = converter.Convert(context.Background(), there, version); err == nil && edited != nil {
			edited(version, obj.Object, back.Object)
		}
		obj, version, other = there, other, version
	}
}

// untouched returns the fields that only the first version has, and that no rule uses.
func untouched(spec *apisv1alpha1.APIConversionSpec, one, other *structuralschema.Structural) []string {
	named := map[string]bool{}
	for _, c := range spec.Conversions {
		for _, rule := range c.Rules {
			for _, text := range []string{rule.Field, rule.Destination} {
				path, _ := ParsePath(text)
				named[path[0]] = true
			}
		}
	}
	var names []string
	for name := range one.Properties {
		if _, found := other.Properties[name]; !found && !named[name] {
			names = append(names, name)
		}
	}
	return names
}

func inJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// Whatever the annotation contains, fields of the current version are converted as without it.
func FuzzKept(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, `{"values":{"spec.legacy":"x"}}`, `{"values":{"spec.size":5,"spec":null,"spec[\"size\"]":[]},"absent":["spec","spec.color"]}`,
		`{"values":{"metadata.name":"x","kind":"Secret","spec.limits[\"a.b\"]":"1","spec.limits":{}}}`, `{"values":{"spec.list":[{"a":"x","b":"x"},{"b":"z"}]}}`, `{"values":{"spec.list":[{"b":"z"},{"a":"x","b":"x"},null,{"c":1}]}}`, `{"absent":[".",""," ","[\"\"]"]}`,
	} {
		f.Add(seed)
	}
	const both = "color: {type: string}\nlimits: {type: object, additionalProperties: {type: string}}\n"
	v1 := structural(f, both+"list: {type: array, items: {type: object, properties: {a: {type: string}, b: {type: string}}}}\nsize: {type: integer}\nlegacy: {type: string}\nseconds: {type: integer}")
	v2 := structural(f, both+"list: {type: array, items: {type: object, properties: {a: {type: string}, c: {type: string}}}}\nreplicas: {type: integer}\nminutes: {type: integer}")
	converter, errs := Compile(between(
		[]apisv1alpha1.APIConversionRule{{Field: "spec.size", Destination: "spec.replicas"}, {Field: "spec.seconds", Destination: "spec.minutes", Transformation: "self / 60"}},
		[]apisv1alpha1.APIConversionRule{{Field: "spec.replicas", Destination: "spec.size"}, {Field: "spec.minutes", Destination: "spec.seconds", Transformation: "self * 60"}},
	), map[string]*structuralschema.Structural{"v1": v1, "v2": v2}, Options{Timeout: time.Minute})
	if len(errs) > 0 {
		f.Fatal(errs.ToAggregate())
	}
	source := object(f, "v2", "{replicas: 1, minutes: 2, color: red, limits: {cpu: '1'}, list: [{a: x}, {c: x}]}")
	f.Fuzz(func(t *testing.T, annotation string) {
		for _, d := range parseKept(annotation, newShape(v1)) {
			if path, err := ParsePath(d.path.String()); err != nil || !slices.Equal(path, d.path) {
				t.Errorf("path %q is read as %q: %v", d.path, path, err)
			}
		}
		converted := convert(t, converter, annotated(source.DeepCopy(), "v1", annotation), "v1")
		again := convert(t, converter, converted, "v2")
		if !equal(withoutMeta(source.Object), withoutMeta(again.Object)) {
			t.Errorf("the annotation changed what v2 shows:\n%s", cmp.Diff(source.Object, again.Object))
		}
		projected, ok := project(converted.Object["spec"], lookup(newShape(v1), Path{"spec"}), nil, nil)
		if !ok || !equal(projected, converted.Object["spec"]) {
			t.Errorf("the annotation set a field that v1 does not have: %v", converted.Object["spec"])
		}
		if converted.GetName() != "w" || converted.GetKind() != "Widget" {
			t.Error("the annotation changed metadata")
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, seed := range []string{"spec.a", ".spec.a", `spec["a.b"].c`, `["x"]`, "", ".", "a..b", `a["`, `a["b"`, `a[null]`, `a["b"]c`, `a[ "b" ]`, `$a-1`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path, err := ParsePath(text)
		if err != nil {
			return
		}
		again, err := ParsePath(path.String())
		if err != nil || len(path) == 0 || !slices.Equal(path, again) {
			t.Errorf("%q is %q, written %q, read as %q: %v", text, path, path.String(), again, err)
		}
	})
}
