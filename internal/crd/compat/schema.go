package compat

import (
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

type schema = apiextensionsv1.JSONSchemaProps

// place is the position of a value in an object.
type place struct {
	field string
	// root means that the value is the object itself, metadata that it is the metadata of an object.
	root, metadata bool
	// watched is true for each schema that has a condition here or above which may refer to several fields. A default value can
	// then change its result.
	watched [2]bool
}

func (p place) child(name string) place {
	field := name
	if p.field != "" {
		field = p.field + "." + name
	}
	return place{field: field, watched: p.watched}
}

func (p place) each() place { return place{field: p.field + "[*]", watched: p.watched} }

// Types of values besides those of OpenAPI.
const (
	anything    = "anything"
	intOrString = "an integer or a string"
)

func typeOf(s *schema) string {
	switch {
	case s.XIntOrString:
		return intOrString
	case s.Type == "":
		return anything // a structural schema without a type preserves unknown fields
	}
	return s.Type
}

// schema returns a schema that accepts what both accept, with the documentation of the first. Each step handles some fields.
func (c *comparison) schema(at place, a, b *schema) *schema {
	lcd := a.DeepCopy()
	if !c.comparable(at, a, b) || !c.types(at, a, b, lcd) {
		return lcd
	}
	at.watched[0] = at.watched[0] || watches(a)
	at.watched[1] = at.watched[1] || watches(b)
	c.extensions(at, a, b, lcd)
	c.object(at, a, b, lcd)
	c.items(at, a, b, lcd)
	c.numbers(at, a, b, lcd)
	c.lengths(at, a, b, lcd)
	c.enum(at, a, b, lcd)
	c.junctors(at, a, b, lcd)
	c.strings(at, a, b, lcd) // adds to allOf, so it follows the junctors
	c.rules(at, a, b, lcd)
	if lcd.Nullable = a.Nullable && b.Nullable; a.Nullable && !b.Nullable {
		c.narrowed(at.field, "null is no longer accepted")
	}
	return lcd
}

// watches reports whether a schema has a condition that may refer to several fields.
func watches(s *schema) bool {
	return len(s.XValidations)+len(s.AllOf)+len(s.AnyOf)+len(s.OneOf)+len(s.Enum) > 0 || s.Not != nil || s.MaxProperties != nil
}

// comparable reports a conflict if fields differ that structural schemas do not support.
func (c *comparison) comparable(at place, a, b *schema) bool {
	foreign := func(s *schema) any {
		forbids := s.AdditionalProperties != nil && !s.AdditionalProperties.Allows && s.AdditionalProperties.Schema == nil
		return []any{s.ID, s.Schema, s.Ref, s.PatternProperties, s.Dependencies, s.AdditionalItems, s.Definitions, forbids,
			s.Items != nil && s.Items.Schema == nil}
	}
	if !reflect.DeepEqual(foreign(a), foreign(b)) {
		c.conflict(at.field, "one of $ref, definitions, patternProperties, dependencies, additionalItems, a list of items, or "+
			"additionalProperties: false changes, which is not supported")
		return false
	}
	return true
}

// types sets the narrower of two types.
func (c *comparison) types(at place, a, b, lcd *schema) bool {
	from, to := typeOf(a), typeOf(b)
	both := func(one, other string) bool { return (from == one && to == other) || (from == other && to == one) }
	var common string
	switch {
	case from == to:
		return true
	case from == anything:
		common = to
	case to == anything:
		common = from
	case both("integer", "number"), both("integer", intOrString), both("number", intOrString):
		common = "integer"
	case both("string", intOrString):
		common = "string"
	default:
		c.conflict(at.field, "type changes from %s to %s", from, to)
		return false
	}
	if common != from {
		c.narrowed(at.field, "type changes from %s to %s", from, to)
	}
	if lcd.XIntOrString = common == intOrString; lcd.XIntOrString {
		common = ""
	}
	lcd.Type = common
	return true
}

// extensions compares the x-kubernetes extensions except rules.
func (c *comparison) extensions(at place, a, b, lcd *schema) {
	preserve := func(s *schema) bool { return ptr.Deref(s.XPreserveUnknownFields, false) }
	if lcd.XPreserveUnknownFields = nil; preserve(a) && preserve(b) {
		lcd.XPreserveUnknownFields = ptr.To(true)
	}
	if a.XEmbeddedResource != b.XEmbeddedResource {
		c.conflict(at.field, "x-kubernetes-embedded-resource changes from %t to %t", a.XEmbeddedResource, b.XEmbeddedResource)
	}
	if typeOf(a) == anything {
		lcd.XListType, lcd.XListMapKeys, lcd.XMapType = b.XListType, b.XListMapKeys, b.XMapType
		return
	}
	if typeOf(b) == anything {
		return
	}
	listType, mapType := ptr.Deref(a.XListType, "atomic"), ptr.Deref(a.XMapType, "granular")
	if to := ptr.Deref(b.XMapType, "granular"); mapType != to {
		c.conflict(at.field, "x-kubernetes-map-type changes from %s to %s", mapType, to)
	}
	if to := ptr.Deref(b.XListType, "atomic"); listType != to {
		c.conflict(at.field, "x-kubernetes-list-type changes from %s to %s", listType, to)
	} else if !slices.Equal(slices.Sorted(slices.Values(a.XListMapKeys)), slices.Sorted(slices.Values(b.XListMapKeys))) {
		c.conflict(at.field, "x-kubernetes-list-map-keys change from %q to %q", a.XListMapKeys, b.XListMapKeys)
	}
}

// items compares the schemas of the elements of lists.
func (c *comparison) items(at place, a, b, lcd *schema) {
	if lcd.Type != "array" && typeOf(lcd) != anything {
		lcd.Items = nil
		return
	}
	if lcd.UniqueItems = a.UniqueItems || b.UniqueItems; b.UniqueItems && !a.UniqueItems {
		c.narrowed(at.field, "uniqueItems is added")
	}
	switch {
	case b.Items == nil:
	case a.Items == nil:
		lcd.Items = b.Items
		c.narrowed(at.field, "a schema of the items is added")
	default:
		lcd.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: c.element(at.each(), a.Items.Schema, b.Items.Schema)}
	}
}

// element compares the schemas of list items or map values. Their defaults only replace null.
func (c *comparison) element(at place, a, b *schema) *schema {
	lcd := c.schema(at, a, b)
	if lcd.Default = a.Default; !equalDefaults(a.Default, b.Default) {
		c.narrowed(at.field, "default %s", changes(a.Default, b.Default))
		lcd.Default = nil
	} else if lcd.Default != nil && !accepts(lcd, lcd.Default) {
		lcd.Default = nil
	}
	return lcd
}
