package compat

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// fields is a short list, to give independent schemas and objects some fields in common.
var fields = []string{"a", "b", "c"}

// words are values that some of the patterns, enums, lengths and formats accept.
var words = []string{"", "a", "b", "ab", "abc", "ac", "bc", "1.2.3.4", "2024-01-01T00:00:00Z", "YWJj"}

// random generates schemas and objects.
type random struct{ *rand.Rand }

func (r random) maybe(oneIn int) bool { return r.IntN(oneIn) == 0 }

func choose[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

func raw(value any) apiextensionsv1.JSON {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return apiextensionsv1.JSON{Raw: content}
}

// schema generates a schema of at most depth levels.
func (r random) schema(depth int) schema {
	kinds := []string{"string", "integer", "number", "boolean", intOrString}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "object", "map", "array", "array", "open", "embedded")
	}
	s := schema{Nullable: r.maybe(6)}
	switch kind := choose(r, append(kinds, anything)...); kind {
	case anything:
		s.XPreserveUnknownFields = ptr.To(true)
	case intOrString:
		s.XIntOrString = true
		if r.maybe(2) {
			s.AnyOf = slices.Clone(intOrStringTypes)
		}
		r.number(&s)
		r.text(&s)
	case "object":
		r.object(&s, depth)
	case "open":
		r.object(&s, depth)
		s.XPreserveUnknownFields = ptr.To(true)
	case "embedded":
		s.Type, s.XEmbeddedResource, s.XPreserveUnknownFields = "object", true, ptr.To(true)
	case "map":
		s.Type = "object"
		s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}
		if !r.maybe(4) {
			s.AdditionalProperties.Schema = ptr.To(r.schema(depth - 1))
		}
		s.MinProperties, s.MaxProperties = r.limit(1), r.limit(3)
	case "array":
		r.array(&s, depth)
	default:
		s.Type = kind
		if kind == "string" {
			r.text(&s)
		} else if kind != "boolean" {
			r.number(&s)
			if kind == "number" && s.Format != "" {
				s.Format = choose(r, "float", "double")
			}
		}
	}
	return s
}

func (r random) limit(around int) *int64 {
	if !r.maybe(4) {
		return nil
	}
	return ptr.To(int64(max(0, around+r.IntN(3)-1)))
}

func (r random) text(s *schema) {
	s.MinLength, s.MaxLength = r.limit(1), r.limit(3)
	if r.maybe(2) {
		s.Pattern = choose(r, "^a", "b", "c$")
	}
	if r.maybe(5) && s.Type == "string" {
		s.Format = choose(r, "ipv4", "date-time", "byte", "unheard-of")
	}
	if r.maybe(5) && s.Type == "string" {
		for _, word := range words {
			if r.maybe(2) {
				s.Enum = append(s.Enum, raw(word))
			}
		}
	}
	if r.maybe(3) {
		condition := schema{Pattern: choose(r, "a", "^b")}
		switch r.IntN(5) {
		case 0:
			s.Not = &condition
		case 1:
			s.AllOf = []schema{condition}
		case 2, 3:
			s.OneOf = []schema{condition, {MinLength: ptr.To[int64](3)}}
		default:
			if s.AnyOf == nil {
				s.AnyOf = []schema{condition, {MaxLength: ptr.To[int64](1)}}
			}
		}
	}
	if r.maybe(6) && s.Type == "string" && s.Format != "date-time" && s.Format != "byte" {
		s.XValidations = apiextensionsv1.ValidationRules{{Rule: choose(r, `self != "a"`, `self.size() < 3`, `!self.startsWith("b")`)}}
	}
}

func (r random) number(s *schema) {
	if r.maybe(4) {
		s.Minimum, s.ExclusiveMinimum = ptr.To(float64(r.IntN(4)-2)), r.maybe(2)
	}
	if r.maybe(4) {
		s.Maximum, s.ExclusiveMaximum = ptr.To(float64(r.IntN(6)+1)), r.maybe(2)
	}
	if r.maybe(2) {
		s.MultipleOf = ptr.To(choose(r, 1.0, 2, 3, 4))
	}
	if r.maybe(4) && !s.XIntOrString {
		s.Format = choose(r, "int32", "int64")
	}
	if r.maybe(8) && s.Type == "integer" {
		s.XValidations = apiextensionsv1.ValidationRules{{Rule: choose(r, `self != 2`, `self % 2 == 0`)}}
	}
}

func (r random) array(s *schema, depth int) {
	items := r.schema(depth - 1)
	s.Type = "array"
	s.MinItems, s.MaxItems = r.limit(1), r.limit(3)
	switch r.IntN(5) {
	case 0:
		items = schema{Type: "string"}
		r.text(&items)
		s.XListType = ptr.To("set")
	case 1:
		items = schema{}
		r.object(&items, depth-1)
		if items.Properties == nil {
			items.Properties = map[string]schema{}
		}
		items.Properties["a"] = schema{Type: "string", MaxLength: r.limit(3)}
		if !slices.Contains(items.Required, "a") {
			items.Required = append(items.Required, "a")
		}
		s.XListType, s.XListMapKeys = ptr.To("map"), []string{"a"}
	case 2:
		s.XListType = ptr.To("atomic")
	}
	s.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}
}

func (r random) object(s *schema, depth int) {
	s.Type = "object"
	for _, name := range fields {
		if r.maybe(3) {
			continue
		}
		if s.Properties == nil {
			s.Properties = map[string]schema{}
		}
		property := r.schema(depth - 1)
		if r.maybe(3) {
			property.Default = ptr.To(raw(r.value(&property, 2)))
		}
		s.Properties[name] = property
		if r.maybe(4) {
			s.Required = append(s.Required, name)
		}
		if r.maybe(8) {
			s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{Rule: fmt.Sprintf("has(self.%s)", name)})
		}
	}
	s.MinProperties, s.MaxProperties = r.limit(1), r.limit(3)
	if r.maybe(8) {
		s.AnyOf = []schema{{Required: []string{"a"}}, {Required: []string{"b"}}}
	}
	if r.maybe(4) {
		s.Not = &schema{Required: []string{"c"}}
	}
	if r.maybe(8) {
		s.XMapType = ptr.To("atomic")
	}
}

// changed generates a similar version of a schema.
func (r random) changed(s schema, depth int) schema {
	s = *s.DeepCopy()
	if r.maybe(6) {
		return r.schema(depth)
	}
	for _, name := range fields {
		if p, found := s.Properties[name]; found && !r.maybe(5) {
			p = r.changed(p, depth-1)
			if r.maybe(6) {
				p.Default = ptr.To(raw(r.value(&p, 2)))
			}
			s.Properties[name] = p
		} else if found && !slices.Contains(s.XListMapKeys, name) {
			delete(s.Properties, name)
		}
	}
	if s.Items != nil {
		s.Items.Schema = ptr.To(r.changed(*s.Items.Schema, depth-1))
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		s.AdditionalProperties.Schema = ptr.To(r.changed(*s.AdditionalProperties.Schema, depth-1))
	}
	switch s.Type {
	case "string":
		if r.maybe(2) {
			r.text(&s)
		}
	case "integer":
		if r.maybe(2) {
			r.number(&s)
		}
		if r.maybe(6) {
			s.Type, s.XValidations, s.Format = "number", nil, ""
		}
	case "object":
		if r.maybe(4) {
			s.MaxProperties = r.limit(3)
		}
		if r.maybe(6) && s.AdditionalProperties == nil && !s.XEmbeddedResource {
			s.XPreserveUnknownFields = nil
		}
		if r.maybe(6) && s.Properties != nil {
			s.Required = slices.DeleteFunc(slices.Clone(s.Required), func(name string) bool { return r.maybe(2) })
		}
	}
	if r.maybe(6) {
		s.Nullable = !s.Nullable
	}
	return s
}

// value generates a value for a schema, which often is valid.
func (r random) value(s *schema, depth int) any {
	if r.maybe(12) {
		return nil
	}
	if len(s.Enum) > 0 {
		var value any
		_ = json.Unmarshal(choose(r, s.Enum...).Raw, &value)
		return value
	}
	kind := typeOf(s)
	if kind == anything {
		kind = choose(r, "string", "integer", "object", "array")
	}
	switch kind {
	case "boolean":
		return r.maybe(2)
	case "integer":
		return int64(r.IntN(12) - 3)
	case "number":
		return choose(r, 0.5, 2.5, float64(r.IntN(12)-3))
	case intOrString:
		return choose[any](r, int64(r.IntN(12)-3), choose(r, words...))
	case "array":
		items := &schema{XPreserveUnknownFields: ptr.To(true)}
		if s.Items != nil {
			items = s.Items.Schema
		}
		result := []any{}
		for range r.IntN(4) {
			if depth > 0 {
				result = append(result, r.value(items, depth-1))
			}
		}
		return result
	case "object":
		return r.fields(s, depth)
	}
	return choose(r, words...)
}

func (r random) fields(s *schema, depth int) map[string]any {
	result := map[string]any{}
	if s.XEmbeddedResource {
		result = map[string]any{"apiVersion": "v1", "kind": "Widget", "metadata": map[string]any{"name": "x"}}
	}
	for _, name := range fields {
		property, found := s.Properties[name]
		if !found && values(s) != nil {
			property = *values(s)
		} else if !found {
			property = schema{XPreserveUnknownFields: ptr.To(true)}
		}
		if depth > 0 && (slices.Contains(s.Required, name) || r.maybe(2)) {
			result[name] = r.value(&property, depth-1)
		}
	}
	return result
}
