package compat

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// also adds a condition that a schema has no other place for.
func also(s *schema, condition schema) {
	if !holds(s, condition) {
		s.AllOf = append(s.AllOf, condition)
	}
}

// holds tells that a schema has a condition in allOf.
func holds(s *schema, condition schema) bool {
	return slices.ContainsFunc(s.AllOf, func(other schema) bool { return reflect.DeepEqual(condition, other) })
}

// enum compares the values that are listed.
func (c *comparison) enum(at place, a, b, lcd *schema) {
	switch {
	case len(b.Enum) == 0:
		return
	case len(a.Enum) == 0:
		lcd.Enum = b.Enum
		c.narrowed(at.field, "only %s is accepted now", list(b.Enum))
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
		c.conflict(at.field, "no value is accepted by both: %s becomes %s", list(a.Enum), list(b.Enum))
	} else if len(removed) > 0 {
		c.narrowed(at.field, "%s is no longer accepted", list(removed))
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

// changes says how one default becomes another.
func changes(a, b *apiextensionsv1.JSON) string {
	switch {
	case a == nil:
		return "is " + string(b.Raw) + " now; there was none"
	case b == nil:
		return string(a.Raw) + " is removed"
	}
	return fmt.Sprintf("changes from %s to %s", a.Raw, b.Raw)
}

// strings compares patterns and formats, and adds the multiples that need allOf too.
func (c *comparison) strings(at place, a, b, lcd *schema) {
	c.multiples(at, a, b, lcd)
	c.formats(at, a, b, lcd)
	if b.Pattern == "" || b.Pattern == a.Pattern || holds(a, schema{Pattern: b.Pattern}) {
		return
	}
	if a.Pattern == "" {
		lcd.Pattern = b.Pattern
		c.narrowed(at.field, "must match the pattern %s now", b.Pattern)
		return
	}
	also(lcd, schema{Pattern: b.Pattern})
	c.narrowed(at.field, "the pattern changes from %s to %s", a.Pattern, b.Pattern)
}

// ranges orders the formats of numbers, the narrowest first.
var ranges = map[string]int{"int32": 1, "int64": 2, "float": 3, "double": 4, "": 5}

// numberFormat is the format without those of fractions on integers, which have no effect.
func numberFormat(ofType, format string) string {
	if ofType == "integer" && (format == "float" || format == "double") {
		return ""
	}
	return format
}

// celTypes are the formats with which a string is something else in CEL.
var celTypes = []string{"byte", "date", "date-time", "datetime", "duration"}

func (c *comparison) formats(at place, a, b, lcd *schema) {
	if a.Format == b.Format {
		return
	}
	changed := func() { c.narrowed(at.field, "the format changes from %q to %q", a.Format, b.Format) }
	isNumber := lcd.Type == "integer" || lcd.Type == "number"
	rankA, knownA := ranges[numberFormat(lcd.Type, a.Format)]
	rankB, knownB := ranges[numberFormat(lcd.Type, b.Format)]
	switch {
	case isNumber && knownA && knownB:
		if lcd.Format = numberFormat(lcd.Type, a.Format); rankB < rankA {
			lcd.Format = b.Format
			changed()
		}
	case c.typed && typeOf(a) != anything && typeOf(b) != anything && (slices.Contains(celTypes, a.Format) || slices.Contains(celTypes, b.Format)):
		c.conflict(at.field, "the format changes from %q to %q, which may change the meaning of rules", a.Format, b.Format)
	case b.Format == "" || holds(a, schema{Format: b.Format}):
	case a.Format == "":
		lcd.Format = b.Format
		changed()
	default:
		also(lcd, schema{Format: b.Format})
		changed()
	}
}

// intOrStringTypes is what x-kubernetes-int-or-string means, which may be written beside it.
var intOrStringTypes = []schema{{Type: "integer"}, {Type: "string"}}

// junctors compares allOf, anyOf, oneOf and not. What only the new schema has is added in allOf if its place is taken, so that
// exactly the values are accepted that both accept.
func (c *comparison) junctors(at place, a, b, lcd *schema) {
	spelled := reflect.DeepEqual(a.AnyOf, intOrStringTypes)
	a, b = withoutTypes(a), withoutTypes(b)
	lcd.AllOf, lcd.Not = nil, a.Not
	for _, condition := range a.AllOf {
		also(lcd, condition)
	}
	for _, condition := range b.AllOf {
		if !holds(a, condition) {
			c.narrowed(at.field, "there is a new condition in allOf")
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

// alternatives compares anyOf or oneOf. If both have alternatives, those of the new schema are added as a condition.
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

// withoutTypes returns a schema without the two ways to spell out what x-kubernetes-int-or-string means.
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

// rules compares the CEL rules. All rules of both hold.
func (c *comparison) rules(at place, a, b, lcd *schema) {
	for _, rule := range b.XValidations {
		same := func(other apiextensionsv1.ValidationRule) bool {
			return other.Rule == rule.Rule && reflect.DeepEqual(other.OptionalOldSelf, rule.OptionalOldSelf)
		}
		if !slices.ContainsFunc(a.XValidations, same) {
			lcd.XValidations = append(lcd.XValidations, rule)
			c.narrowed(at.field, "there is a new rule: %s", rule.Rule)
		}
	}
}
