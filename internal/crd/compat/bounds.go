package compat

import (
	"cmp"
	"math"

	"k8s.io/utils/ptr"
)

// numbers compares the bounds of numbers.
func (c *comparison) numbers(at place, a, b, lcd *schema) {
	lcd.Maximum = highest(c, at, "maximum", a.Maximum, b.Maximum)
	lcd.ExclusiveMaximum = c.exclusive(at, "maximum", lcd.Maximum,
		edge{a.Maximum, a.ExclusiveMaximum}, edge{b.Maximum, b.ExclusiveMaximum})
	lcd.Minimum = lowest(c, at, "minimum", a.Minimum, b.Minimum)
	lcd.ExclusiveMinimum = c.exclusive(at, "minimum", lcd.Minimum,
		edge{a.Minimum, a.ExclusiveMinimum}, edge{b.Minimum, b.ExclusiveMinimum})
	if lcd.Minimum != nil && lcd.Maximum != nil && *lcd.Minimum == *lcd.Maximum && (lcd.ExclusiveMinimum || lcd.ExclusiveMaximum) {
		c.conflict(at.field, "no number is valid for both: only %v would be, which is excluded", *lcd.Minimum)
	}
	notEmpty(c, at, "number", lcd.Minimum, lcd.Maximum)
}

// lengths compares the bounds of the number of characters, items and fields.
func (c *comparison) lengths(at place, a, b, lcd *schema) {
	lcd.MinLength = lowest(c, at, "minLength", a.MinLength, b.MinLength)
	lcd.MaxLength = highest(c, at, "maxLength", a.MaxLength, b.MaxLength)
	notEmpty(c, at, "length", lcd.MinLength, lcd.MaxLength)
	lcd.MinItems = lowest(c, at, "minItems", a.MinItems, b.MinItems)
	lcd.MaxItems = highest(c, at, "maxItems", a.MaxItems, b.MaxItems)
	notEmpty(c, at, "number of items", lcd.MinItems, lcd.MaxItems)
	lcd.MinProperties = lowest(c, at, "minProperties", a.MinProperties, b.MinProperties)
	lcd.MaxProperties = highest(c, at, "maxProperties", a.MaxProperties, b.MaxProperties)
	notEmpty(c, at, "number of fields", lcd.MinProperties, lcd.MaxProperties)
}

// highest returns the tighter of two upper bounds.
func highest[T cmp.Ordered](c *comparison, at place, what string, a, b *T) *T {
	return tighter(c, at, what, a, b, func(x, y T) bool { return x < y })
}

// lowest returns the tighter of two lower bounds.
func lowest[T cmp.Ordered](c *comparison, at place, what string, a, b *T) *T {
	return tighter(c, at, what, a, b, func(x, y T) bool { return x > y })
}

func tighter[T any](c *comparison, at place, what string, a, b *T, isTighter func(x, y T) bool) *T {
	switch {
	case b == nil:
		return a
	case a == nil:
		c.narrowed(at.field, "%s of %v is added", what, *b)
		return b
	case isTighter(*b, *a):
		c.narrowed(at.field, "%s changes from %v to %v", what, *a, *b)
		return b
	}
	return a
}

func notEmpty[T cmp.Ordered](c *comparison, at place, what string, low, high *T) {
	if low != nil && high != nil && *low > *high {
		c.conflict(at.field, "no %s is valid for both: it must be at least %v and at most %v", what, *low, *high)
	}
}

// edge is one end of a range of numbers.
type edge struct {
	bound     *float64
	exclusive bool
}

// exclusive reports whether the common bound is exclusive.
func (c *comparison) exclusive(at place, what string, common *float64, a, b edge) bool {
	excludes := func(e edge) bool { return e.exclusive && common != nil && e.bound != nil && *e.bound == *common }
	if excludes(b) && a.bound != nil && *a.bound == *common && !a.exclusive {
		c.narrowed(at.field, "%s of %v becomes exclusive", what, *common)
	}
	return excludes(a) || excludes(b)
}

// multiples compares multipleOf. The result is the larger value if it is a multiple of the other; otherwise allOf has both.
func (c *comparison) multiples(at place, a, b, lcd *schema) {
	if b.MultipleOf == nil || ptr.Equal(a.MultipleOf, b.MultipleOf) || holds(a, schema{MultipleOf: b.MultipleOf}) {
		return
	}
	if a.MultipleOf == nil {
		c.narrowed(at.field, "multipleOf %v is added", *b.MultipleOf)
		lcd.MultipleOf = b.MultipleOf
		return
	}
	whole := math.Trunc(*a.MultipleOf) == *a.MultipleOf && math.Trunc(*b.MultipleOf) == *b.MultipleOf
	if whole && math.Mod(*a.MultipleOf, *b.MultipleOf) == 0 {
		return
	}
	c.narrowed(at.field, "multipleOf changes from %v to %v", *a.MultipleOf, *b.MultipleOf)
	if whole && math.Mod(*b.MultipleOf, *a.MultipleOf) == 0 {
		lcd.MultipleOf = b.MultipleOf
		return
	}
	also(lcd, schema{MultipleOf: b.MultipleOf})
}
