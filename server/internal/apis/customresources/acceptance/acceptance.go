// Package acceptance recognises valid values of a schema. Upstream's validator makes a validator with a copy of the schema for each field
// of each object, to describe what is wrong. A Schema only answers whether a value is certainly valid, and allocates nothing.
package acceptance

import (
	"regexp"
	"slices"
	"unicode/utf8"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Schema accepts values that upstream's validator accepts. It does not accept all of them: it knows the constraints that most schemas have,
// and never accepts a value where a schema has another one. A nil Schema accepts nothing.
type Schema struct {
	is func(value any) bool // whether the Go type of a value has the type of the schema

	// of strings
	minLength, maxLength *int64
	pattern              *regexp.Regexp
	enum                 []string

	// of arrays
	minItems, maxItems *int64
	items              *Schema

	// of objects
	properties map[string]*Schema
	required   []string
	others     *Schema // of additional properties
}

// anything accepts all values.
var anything = &Schema{}

// New returns the Schema of a schema, or nil if the schema has a constraint that it does not know.
func New(s *spec.Schema) *Schema {
	if s == nil || len(s.Type) != 1 || !isKnown(s) {
		return nil
	}
	switch s.Type[0] {
	case "object":
		return object(s)
	case "array":
		return array(s)
	case "string":
		return text(s)
	case "boolean":
		return scalar(s, func(value any) bool { _, ok := value.(bool); return ok })
	case "integer":
		return scalar(s, func(value any) bool { _, ok := value.(int64); return ok })
	case "number":
		return scalar(s, func(value any) bool {
			switch value.(type) {
			case int64, float64:
				return true
			}
			return false
		})
	}
	return nil
}

// isKnown reports whether a schema has no constraint that this package does not know, apart from those of its subschemas, and those that
// apply to one type only.
func isKnown(s *spec.Schema) bool {
	return s.Ref.String() == "" && s.Format == "" && len(s.AllOf) == 0 && len(s.AnyOf) == 0 && len(s.OneOf) == 0 && s.Not == nil &&
		len(s.Dependencies) == 0 && len(s.PatternProperties) == 0 && s.MinProperties == nil && s.MaxProperties == nil && !s.UniqueItems &&
		s.AdditionalItems == nil && s.MultipleOf == nil && s.Minimum == nil && s.Maximum == nil
}

func scalar(s *spec.Schema, is func(any) bool) *Schema {
	if len(s.Enum) > 0 {
		return nil
	}
	return &Schema{is: is}
}

func text(s *spec.Schema) *Schema {
	t := &Schema{is: func(value any) bool { _, ok := value.(string); return ok }, minLength: s.MinLength, maxLength: s.MaxLength}
	for _, allowed := range s.Enum {
		word, ok := allowed.(string)
		if !ok {
			return nil
		}
		t.enum = append(t.enum, word)
	}
	if s.Pattern != "" {
		var err error
		if t.pattern, err = regexp.Compile(s.Pattern); err != nil {
			return nil
		}
	}
	return t
}

func array(s *spec.Schema) *Schema {
	if len(s.Enum) > 0 || s.Items != nil && len(s.Items.Schemas) > 0 {
		return nil
	}
	a := &Schema{is: func(value any) bool { _, ok := value.([]any); return ok }, minItems: s.MinItems, maxItems: s.MaxItems,
		items: anything}
	if s.Items != nil && s.Items.Schema != nil {
		a.items = New(s.Items.Schema)
	}
	return a
}

func object(s *spec.Schema) *Schema {
	if len(s.Enum) > 0 {
		return nil
	}
	o := &Schema{is: func(value any) bool { _, ok := value.(map[string]any); return ok }, required: s.Required,
		properties: make(map[string]*Schema, len(s.Properties)), others: anything}
	for name, property := range s.Properties {
		o.properties[name] = New(&property)
	}
	if others := s.AdditionalProperties; others != nil && (others.Schema != nil || !others.Allows) {
		o.others = New(others.Schema) // nil without a schema
	}
	return o
}

// Accepts reports whether a value of JSON, as an Unstructured has it, is certainly valid.
func (s *Schema) Accepts(value any) bool {
	if s == anything {
		return true
	}
	if s == nil || value == nil || !s.is(value) {
		return false
	}
	switch v := value.(type) {
	case string:
		return s.acceptsText(v)
	case []any:
		return s.acceptsItems(v)
	case map[string]any:
		return s.acceptsObject(v)
	}
	return true
}

func (s *Schema) acceptsText(text string) bool {
	if s.minLength != nil || s.maxLength != nil {
		length := int64(utf8.RuneCountInString(text))
		if s.minLength != nil && length < *s.minLength || s.maxLength != nil && length > *s.maxLength {
			return false
		}
	}
	return (s.pattern == nil || s.pattern.MatchString(text)) && (s.enum == nil || slices.Contains(s.enum, text))
}

func (s *Schema) acceptsItems(items []any) bool {
	if s.minItems != nil && int64(len(items)) < *s.minItems || s.maxItems != nil && int64(len(items)) > *s.maxItems {
		return false
	}
	for _, item := range items {
		if !s.items.Accepts(item) {
			return false
		}
	}
	return true
}

func (s *Schema) acceptsObject(object map[string]any) bool {
	for _, name := range s.required {
		if _, ok := object[name]; !ok {
			return false
		}
	}
	for name, value := range object {
		of, ok := s.properties[name]
		if !ok {
			of = s.others
		}
		if !of.Accepts(value) {
			return false
		}
	}
	return true
}
