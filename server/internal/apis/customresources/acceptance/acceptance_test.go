package acceptance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

func number[T any](n T) *T { return &n }

// random makes schemas and values for them, of which some are not valid.
type random struct{ *rand.Rand }

func (r random) one(in int) bool { return r.IntN(in) == 0 }

func (r random) text() string {
	return []string{"", "a", "ab", "abc", "äöü", "Ready", "a b", "2026-01-02T03:04:05Z"}[r.IntN(8)]
}

func (r random) schema(depth int) spec.Schema {
	s := spec.Schema{}
	types := []string{"string", "boolean", "integer", "number", "array", "object"}
	if depth == 0 {
		types = types[:4]
	}
	s.Type = spec.StringOrArray{types[r.IntN(len(types))]}
	switch s.Type[0] {
	case "string":
		if r.one(4) {
			s.MinLength = number(int64(r.IntN(3)))
		}
		if r.one(4) {
			s.MaxLength = number(int64(r.IntN(4)))
		}
		if r.one(4) {
			s.Pattern = []string{"^a", "b$", "(", "^[a-z]+$"}[r.IntN(4)]
		}
		if r.one(6) {
			s.Enum = []any{r.text(), r.text()}
		}
		if r.one(8) {
			s.Format = []string{"date-time", "uri", "ipv4"}[r.IntN(3)]
		}
	case "integer", "number":
		if r.one(4) {
			s.Maximum = number(float64(r.IntN(4)))
		}
		if r.one(4) {
			s.Minimum = number(float64(r.IntN(4)))
		}
		if r.one(6) {
			s.MultipleOf = number(2.0)
		}
		if r.one(6) {
			s.Enum = []any{int64(1), 2.0}
		}
		if r.one(8) {
			s.Format = "int32"
		}
	case "array":
		if !r.one(5) {
			items := r.schema(depth - 1)
			s.Items = &spec.SchemaOrArray{Schema: &items}
		}
		if r.one(4) {
			s.MinItems = number(int64(r.IntN(3)))
		}
		if r.one(4) {
			s.MaxItems = number(int64(r.IntN(3)))
		}
		s.UniqueItems = r.one(6)
	case "object":
		s.Properties = map[string]spec.Schema{}
		for _, name := range []string{"a", "b", "c"} {
			if r.one(2) {
				s.Properties[name] = r.schema(depth - 1)
			}
			if r.one(5) {
				s.Required = append(s.Required, name)
			}
		}
		if r.one(4) {
			s.AdditionalProperties = &spec.SchemaOrBool{Allows: r.one(2)}
			if r.one(2) {
				others := r.schema(depth - 1)
				s.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &others}
			}
		}
		if r.one(8) {
			s.MaxProperties = number(int64(r.IntN(3)))
		}
		if r.one(8) {
			s.MinProperties = number(int64(r.IntN(3)))
		}
	}
	s.Nullable = r.one(5)
	for _, all := range []*[]spec.Schema{&s.AllOf, &s.AnyOf, &s.OneOf} {
		if r.one(24) {
			*all = []spec.Schema{r.schema(0), r.schema(0)}
		}
	}
	if r.one(24) {
		not := r.schema(0)
		s.Not = &not
	}
	return s
}

// value returns a value that has about the form of a schema.
func (r random) value(s *spec.Schema, depth int) any {
	if r.one(12) || s == nil || len(s.Type) == 0 {
		return []any{nil, true, int64(1), 1.5, "text", []any{}, map[string]any{}}[r.IntN(7)]
	}
	switch s.Type[0] {
	case "string":
		return r.text()
	case "boolean":
		return r.one(2)
	case "integer":
		return int64(r.IntN(4))
	case "number":
		if r.one(2) {
			return int64(r.IntN(4))
		}
		return float64(r.IntN(8)) / 2
	case "array":
		items := []any{}
		for range r.IntN(3) {
			var of *spec.Schema
			if s.Items != nil {
				of = s.Items.Schema
			}
			items = append(items, r.value(of, depth-1))
		}
		return items
	}
	object := map[string]any{}
	for _, name := range []string{"a", "b", "c", "d"} {
		if r.one(3) {
			continue
		}
		if of, ok := s.Properties[name]; ok {
			object[name] = r.value(&of, depth-1)
		} else if s.AdditionalProperties != nil && !r.one(8) {
			object[name] = r.value(s.AdditionalProperties.Schema, depth-1)
		}
	}
	return object
}

func TestAcceptedValuesAreValid(t *testing.T) {
	accepted, valid := 0, 0
	for seed := range uint64(20_000) {
		r := random{rand.New(rand.NewPCG(seed, 1))}
		s := r.schema(3)
		own := New(&s)
		for range 5 {
			v := r.value(&s, 3)
			upstream := validate.NewSchemaValidator(&s, nil, "", strfmt.Default).Validate(v)
			if upstream.IsValid() {
				valid++
			}
			if !own.Accepts(v) {
				continue
			}
			accepted++
			if !upstream.IsValid() {
				t.Fatalf("%d: accepted %#v, but upstream says: %v; schema %+v", seed, v, upstream.Errors, s)
			}
		}
	}
	if accepted < valid/3 {
		t.Errorf("accepted %d of %d valid values: the test says nothing", accepted, valid)
	}
}

func TestValuesOfKnownConstraintsAreAccepted(t *testing.T) {
	text := func(change func(*spec.Schema)) spec.Schema {
		s := spec.StringProperty()
		change(s)
		return *s
	}
	s := spec.Schema{}
	s.Type = spec.StringOrArray{"object"}
	s.Required = []string{"name"}
	s.Properties = map[string]spec.Schema{
		"name": text(func(s *spec.Schema) {
			s.Pattern, s.MinLength, s.MaxLength = "^[a-zä]+$", number(int64(1)), number(int64(3))
		}),
		"phase": text(func(s *spec.Schema) { s.Enum = []any{"Ready", "Deleting"} }),
		"since": text(func(s *spec.Schema) { s.Format = "date-time" }),
		"words": *spec.ArrayProperty(spec.StringProperty()),
		"names": *spec.MapProperty(spec.StringProperty()),
	}
	own := New(&s)
	for _, c := range []struct {
		object   map[string]any
		accepted bool
	}{
		{map[string]any{"name": "abc", "phase": "Ready", "words": []any{"a"}, "names": map[string]any{"x": "y"}, "other": int64(1)}, true},
		{map[string]any{"name": "äää"}, true},
		{map[string]any{"name": "abcd"}, false},
		{map[string]any{"name": ""}, false},
		{map[string]any{"name": "A"}, false},
		{map[string]any{"phase": "Ready"}, false},
		{map[string]any{"name": "a", "phase": "ready"}, false},
		{map[string]any{"name": "a", "since": "2026-01-02T03:04:05Z"}, false}, // upstream knows formats
		{map[string]any{"name": "a", "words": []any{int64(1)}}, false},
		{map[string]any{"name": "a", "names": map[string]any{"x": nil}}, false},
	} {
		if got := own.Accepts(c.object); got != c.accepted {
			t.Errorf("%v: got %t", c.object, got)
		}
	}
	if New(nil).Accepts(map[string]any{}) {
		t.Error("without a schema, a value is accepted")
	}
}

func TestAcceptingAllocatesNothing(t *testing.T) {
	s := spec.MapProperty(spec.ArrayProperty(spec.StringProperty()))
	own, object := New(s), map[string]any{}
	for i := range 10 {
		object[fmt.Sprint(i)] = []any{"a", "b"}
	}
	if n := testing.AllocsPerRun(100, func() {
		if !own.Accepts(object) {
			t.Fatal("not accepted")
		}
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
