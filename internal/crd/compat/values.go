package compat

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// also adds a condition to allOf.
func also(s *schema, condition schema) {
	if !holds(s, condition) {
		s.AllOf = append(s.AllOf, condition)
	}
}

// holds reports whether a schema has a condition in allOf.
func holds(s *schema, condition schema) bool {
	return slices.ContainsFunc(s.AllOf, func(other schema) bool { return reflect.DeepEqual(condition, other) })
}

// enum compares the values in enum.
func (c *comparison) enum(at place, a, b, lcd *schema) {
	switch {
	case len(b.Enum) == 0:
		return
	case len(a.Enum) == 0:
		lcd.Enum = b.Enum
		c.narrowed(at.field, "enum %s is added", list(b.Enum))
		return
	}
	var removed []apiextensionsv1.JSON
	lcd.Enum = nil
	for _, value := range a.Enum {
		if slices.ContainsFunc(b.Enum, func(other apiextensionsv1.JSON) bool { return equalJSON(value, other) }) {
			lcd.Enum = append(lcd.Enum, value)
		} else {
			removed = append(removed, value)
		}
	}
	if len(lcd.Enum) == 0 {
		c.conflict(at.field, "no value is valid for both: enum changes from %s to %s", list(a.Enum), list(b.Enum))
	} else if len(removed) > 0 {
		c.narrowed(at.field, "enum value %s is removed", list(removed))
	}
}

func list(values []apiextensionsv1.JSON) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = string(value.Raw)
	}
	return strings.Join(texts, ", ")
}

func equalJSON(a, b apiextensionsv1.JSON) bool {
	var x, y any
	return json.Unmarshal(a.Raw, &x) == nil && json.Unmarshal(b.Raw, &y) == nil && reflect.DeepEqual(x, y)
}

func equalDefaults(a, b *apiextensionsv1.JSON) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equalJSON(*a, *b)
}

// changes describes the difference of two defaults.
func changes(a, b *apiextensionsv1.JSON) string {
	switch {
	case a == nil:
		return string(b.Raw) + " is added"
	case b == nil:
		return string(a.Raw) + " is removed"
	}
	return fmt.Sprintf("changes from %s to %s", a.Raw, b.Raw)
}

// strings compares patterns, formats and multipleOf, which may all add to allOf.
func (c *comparison) strings(at place, a, b, lcd *schema) {
	c.multiples(at, a, b, lcd)
	c.formats(at, a, b, lcd)
	if b.Pattern == "" || b.Pattern == a.Pattern || holds(a, schema{Pattern: b.Pattern}) {
		return
	}
	if a.Pattern == "" {
		lcd.Pattern = b.Pattern
		c.narrowed(at.field, "pattern %s is added", b.Pattern)
		return
	}
	also(lcd, schema{Pattern: b.Pattern})
	c.narrowed(at.field, "pattern changes from %s to %s", a.Pattern, b.Pattern)
}

// ranges orders the formats of numbers from narrow to wide.
var ranges = map[string]int{"int32": 1, "int64": 2, "float": 3, "double": 4, "": 5}

// numberFormat returns the format, or the empty string for formats without effect: float and double on integers.
func numberFormat(ofType, format string) string {
	if ofType == "integer" && (format == "float" || format == "double") {
		return ""
	}
	return format
}

// celTypes are the string formats that have another type in CEL.
var celTypes = []string{"byte", "date", "date-time", "datetime", "duration"}

func (c *comparison) formats(at place, a, b, lcd *schema) {
	if a.Format == b.Format {
		return
	}
	changed := func() { c.narrowed(at.field, "format changes from %q to %q", a.Format, b.Format) }
	isNumber := lcd.Type == "integer" || lcd.Type == "number"
	rankA, knownA := ranges[numberFormat(lcd.Type, a.Format)]
	rankB, knownB := ranges[numberFormat(lcd.Type, b.Format)]
	switch {
	case isNumber && knownA && knownB:
		if lcd.Format = numberFormat(lcd.Type, a.Format); rankB < rankA {
			lcd.Format = b.Format
			changed()
		}
	case c.typed && typeOf(a) != anything && typeOf(b) != anything &&
		(slices.Contains(celTypes, a.Format) || slices.Contains(celTypes, b.Format)):
		c.conflict(at.field, "format changes from %q to %q, which may change the meaning of rules", a.Format, b.Format)
	case b.Format == "" || holds(a, schema{Format: b.Format}):
	case a.Format == "":
		lcd.Format = b.Format
		changed()
	default:
		also(lcd, schema{Format: b.Format})
		changed()
	}
}

// intOrStringTypes is the anyOf that x-kubernetes-int-or-string implies and may be stated explicitly.
var intOrStringTypes = []schema{{Type: "integer"}, {Type: "string"}}

// junctors compares allOf, anyOf, oneOf and not. If both schemas have different values, the new one moves to allOf, so that the result
// accepts exactly what both accept.
func (c *comparison) junctors(at place, a, b, lcd *schema) {
	spelled := reflect.DeepEqual(a.AnyOf, intOrStringTypes)
	a, b = withoutTypes(a), withoutTypes(b)
	lcd.AllOf, lcd.Not = nil, a.Not
	for _, condition := range a.AllOf {
		also(lcd, condition)
	}
	for _, condition := range b.AllOf {
		if !holds(a, condition) {
			c.narrowed(at.field, "a condition in allOf is added")
		}
		also(lcd, condition)
	}
	lcd.AnyOf = c.alternatives(at, "anyOf", a.AnyOf, b.AnyOf, lcd, schema{AnyOf: b.AnyOf})
	lcd.OneOf = c.alternatives(at, "oneOf", a.OneOf, b.OneOf, lcd, schema{OneOf: b.OneOf})
	if b.Not != nil && !reflect.DeepEqual(a.Not, b.Not) && !holds(a, schema{Not: b.Not}) {
		c.narrowed(at.field, "not changes")
		if a.Not != nil {
			also(lcd, schema{Not: b.Not})
		} else {
			lcd.Not = b.Not
		}
	}
	if lcd.XIntOrString && spelled && len(lcd.AnyOf) == 0 {
		lcd.AnyOf = slices.Clone(intOrStringTypes)
	}
}

// alternatives compares anyOf or oneOf. If both have alternatives, those of the new schema move to allOf.
func (c *comparison) alternatives(at place, what string, a, b []schema, lcd *schema, condition schema) []schema {
	if len(b) == 0 || reflect.DeepEqual(a, b) || holds(lcd, condition) {
		return a
	}
	c.narrowed(at.field, "%s changes", what)
	if len(a) == 0 {
		return b
	}
	also(lcd, condition)
	return a
}

// withoutTypes returns a schema without the explicit forms of what x-kubernetes-int-or-string implies.
func withoutTypes(s *schema) *schema {
	s = s.DeepCopy()
	if !s.XIntOrString {
		return s
	}
	if reflect.DeepEqual(s.AnyOf, intOrStringTypes) {
		s.AnyOf = nil
	}
	if len(s.AllOf) > 0 && reflect.DeepEqual(s.AllOf[0], schema{AnyOf: intOrStringTypes}) {
		s.AllOf = s.AllOf[1:]
	}
	return s
}

// rules compares the CEL rules. The result has the rules of both.
func (c *comparison) rules(at place, a, b, lcd *schema) {
	for _, rule := range b.XValidations {
		same := func(other apiextensionsv1.ValidationRule) bool {
			return other.Rule == rule.Rule && reflect.DeepEqual(other.OptionalOldSelf, rule.OptionalOldSelf)
		}
		if !slices.ContainsFunc(a.XValidations, same) {
			lcd.XValidations = append(lcd.XValidations, rule)
			c.narrowed(at.field, "rule is added: %s", rule.Rule)
		}
	}
}
