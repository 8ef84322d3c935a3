package compat

import (
	"maps"
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// metaFields are valid in every object, even if its schema does not mention them.
var metaFields = []string{"apiVersion", "kind", "metadata"}

// isOpen reports whether an object preserves fields that its schema does not mention.
func isOpen(s *schema) bool {
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Schema == nil && s.AdditionalProperties.Allows
	}
	return ptr.Deref(s.XPreserveUnknownFields, false)
}

// values returns the schema of the values of a map, or nil if s is not a map.
func values(s *schema) *schema {
	if s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.Schema
}

// object compares the fields of objects.
func (c *comparison) object(at place, a, b, lcd *schema) {
	lcd.Properties, lcd.AdditionalProperties, lcd.Required = nil, nil, nil
	if lcd.Type != "object" && typeOf(lcd) != anything {
		return
	}
	c.unmentioned(at, a, b, lcd)
	for _, name := range slices.Sorted(maps.Keys(union(a.Properties, b.Properties))) {
		c.property(at, name, a, b, lcd)
	}
	c.required(at, a, b, lcd)
}

func union(a, b map[string]schema) map[string]schema {
	result := maps.Clone(b)
	if result == nil {
		result = map[string]schema{}
	}
	maps.Copy(result, a)
	return result
}

// unmentioned compares the handling of fields without a schema.
func (c *comparison) unmentioned(at place, a, b, lcd *schema) {
	switch from, to := values(a), values(b); {
	case from != nil && to != nil:
		lcd.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: c.element(at.child("*"), from, to)}
	case (from != nil && isOpen(b)) || (to != nil && isOpen(a)):
		lcd.AdditionalProperties = a.AdditionalProperties
		if to != nil {
			lcd.AdditionalProperties = b.AdditionalProperties
			c.narrowed(at.field, "fields without a schema must match the new additionalProperties")
		}
		c.emptied(at.child("*"), a, b, lcd.AdditionalProperties.Schema)
		if len(a.Properties)+len(b.Properties) > 0 {
			c.conflict(at.field, "properties together with unknown fields cannot be combined with additionalProperties")
		}
	case isOpen(a) && isOpen(b):
		if lcd.AdditionalProperties = a.AdditionalProperties; a.AdditionalProperties == nil {
			lcd.AdditionalProperties = b.AdditionalProperties
		}
		if a.AdditionalProperties == nil && b.AdditionalProperties != nil {
			c.narrowed(at.field, "the content of unknown fields is no longer preserved")
		}
	case isOpen(a):
		c.narrowed(at.field, "unknown fields are no longer preserved")
	case from != nil:
		c.narrowed(at.field, "additionalProperties is removed; only fields in properties remain")
	default:
		lcd.AdditionalProperties = a.AdditionalProperties // false or absent in both
	}
}

// property compares a field that at least one of the schemas mentions.
func (c *comparison) property(at place, name string, a, b, lcd *schema) {
	from, to := fieldOf(a, name), fieldOf(b, name)
	child := at.child(name)
	child.metadata = (at.root || a.XEmbeddedResource) && name == "metadata"
	var common *schema
	switch {
	case from != nil && to != nil:
		common = c.schema(child, from, to)
		c.defaults(child, name, from, to, common, lcd)
	case from != nil && keepsUnknown(at, b, name):
		common = from.DeepCopy()
		c.emptied(child, a, b, common)
	case to != nil && keepsUnknown(at, a, name):
		common = to.DeepCopy()
		c.emptied(child, a, b, common)
		if reported := isOpen(a) && !isOpen(b); !reported && !(slices.Contains(metaFields, name) && isPlain(to)) {
			c.narrowed(child.field, "a schema is added to a field that accepted any value")
		}
	case from != nil:
		if !isForbidden(from) {
			c.narrowed(child.field, "is removed")
		}
		common = c.dropped(child, name, a, b, 0)
	default:
		common = c.dropped(child, name, b, a, 1)
	}
	if common == nil || values(lcd) != nil { // dropped, or in a map, where no properties are allowed
		return
	}
	if lcd.Properties == nil {
		lcd.Properties = map[string]schema{}
	}
	lcd.Properties[name] = *common
}

// fieldOf returns the schema of a field, or nil if the object has none for it. The default of map values only replaces null, so it is
// removed.
func fieldOf(s *schema, name string) *schema {
	if p, found := s.Properties[name]; found {
		return &p
	}
	if v := values(s); v != nil {
		v = v.DeepCopy()
		v.Default = nil
		return v
	}
	return nil
}

// keepsUnknown reports whether an object preserves a field that its schema does not mention.
func keepsUnknown(at place, s *schema, name string) bool {
	return isOpen(s) || at.metadata || ((at.root || s.XEmbeddedResource) && slices.Contains(metaFields, name))
}

// isForbidden reports whether a schema accepts no value, like the fields that dropped returns.
func isForbidden(s *schema) bool { return s.Not != nil && reflect.DeepEqual(*s.Not, schema{}) }

// emptied refuses objects in fields that one side accepts only by additionalProperties: true, which preserves the fields of an object and
// prunes their content.
func (c *comparison) emptied(at place, a, b, field *schema) {
	empties := func(s *schema) bool { return s.AdditionalProperties != nil && s.AdditionalProperties.Schema == nil }
	if (empties(a) || empties(b)) && holdsObjects(field) {
		c.conflict(at.field, "additionalProperties: true prunes the fields of nested objects, which the other definition specifies")
	}
}

func holdsObjects(s *schema) bool {
	return s.Type == "object" || typeOf(s) == anything || (s.Items != nil && holdsObjects(s.Items.Schema))
}

// isPlain reports whether a schema specifies only a type. For metaFields that adds nothing.
func isPlain(s *schema) bool {
	return reflect.DeepEqual(schema{Type: s.Type, Description: s.Description}, *s)
}

// dropped checks that a field can be left out which s mentions and the other schema prunes. If conditions may refer to the field, it
// returns a schema that rejects all values, because the conditions need a schema.
func (c *comparison) dropped(at place, name string, s, other *schema, side int) *schema {
	who := [2]string{"existing", "new"}[side]
	field := s.Properties[name]
	switch {
	case (slices.Contains(s.Required, name) && field.Default == nil) || slices.Contains(other.Required, name):
		c.conflict(at.field, "is required, but exists only in the %s definition", who)
	case field.Default != nil && at.watched[side]:
		c.conflict(at.field, "has a default in the %s definition that conditions may use, but does not exist in the other", who)
	case at.watched[side]:
		absent := field.DeepCopy()
		absent.Nullable, absent.Not = false, &schema{}
		return absent
	}
	return nil
}

// defaults decides the default of a field of the object parent. Objects of the least common denominator have the value explicitly before
// the other definition sees them. A default that is invalid under one definition makes the field required.
func (c *comparison) defaults(at place, name string, a, b, lcd, parent *schema) {
	if lcd.Default = a.Default; lcd.Default == nil {
		lcd.Default = b.Default
	}
	if !equalDefaults(a.Default, b.Default) {
		c.narrowed(at.field, "default %s", changes(a.Default, b.Default))
	}
	if lcd.Default != nil && !accepts(lcd, lcd.Default) {
		lcd.Default = nil
		parent.Required = append(parent.Required, name)
	}
}

// required compares the required fields.
func (c *comparison) required(at place, a, b, lcd *schema) {
	for _, name := range b.Required {
		if p := b.Properties[name]; !slices.Contains(a.Required, name) && p.Default == nil {
			c.narrowed(at.child(name).field, "becomes required")
		}
	}
	pruned := func(name string) bool {
		_, kept := lcd.Properties[name]
		_, known := union(a.Properties, b.Properties)[name]
		return known && !kept && values(lcd) == nil
	}
	all := slices.Concat(a.Required, b.Required, lcd.Required)
	lcd.Required = nil
	for _, name := range all {
		if !slices.Contains(lcd.Required, name) && !pruned(name) {
			lcd.Required = append(lcd.Required, name)
		}
	}
}
