package compat

import (
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type (
	definition = apiextensionsv1.CustomResourceDefinition
	version    = apiextensionsv1.CustomResourceDefinitionVersion
)

// definition compares two definitions. The result is the least common denominator if there are no conflicts.
func (c *comparison) definition(a, b *definition) *definition {
	lcd := a.DeepCopy()
	for _, fixed := range []struct {
		field string
		a, b  string
	}{
		{"spec.group", a.Spec.Group, b.Spec.Group},
		{"spec.names.plural", a.Spec.Names.Plural, b.Spec.Names.Plural},
		{"spec.names.kind", a.Spec.Names.Kind, b.Spec.Names.Kind},
		{"spec.names.singular", a.Spec.Names.Singular, b.Spec.Names.Singular},
		{"spec.names.listKind", a.Spec.Names.ListKind, b.Spec.Names.ListKind},
		{"spec.scope", string(a.Spec.Scope), string(b.Spec.Scope)},
	} {
		if fixed.a != fixed.b {
			c.conflict(fixed.field, "changes from %q to %q", fixed.a, fixed.b)
		}
	}
	lcd.Spec.Names.ShortNames = c.common("spec.names.shortNames", a.Spec.Names.ShortNames, b.Spec.Names.ShortNames)
	lcd.Spec.Names.Categories = c.common("spec.names.categories", a.Spec.Names.Categories, b.Spec.Names.Categories)
	lcd.Spec.Versions = c.versions(a, b)
	if len(lcd.Spec.Versions) < 2 {
		lcd.Spec.Conversion = nil
	} else if !reflect.DeepEqual(a.Spec.Conversion, b.Spec.Conversion) {
		c.conflict("spec.conversion", "changes")
	}
	return lcd
}

// common returns the names in both lists.
func (c *comparison) common(field string, a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool {
		removed := !slices.Contains(b, name)
		if removed {
			c.narrowed(field, "%q is removed", name)
		}
		return removed
	})
}

func (c *comparison) versions(a, b *definition) []version {
	var result []version
	for _, existing := range a.Spec.Versions {
		i := slices.IndexFunc(b.Spec.Versions, named(existing.Name))
		if i < 0 {
			c.narrowed("spec.versions", "version %s is removed", existing.Name)
			continue
		}
		result = append(result, c.compareVersion(&existing, &b.Spec.Versions[i]))
	}
	if len(result) == 0 {
		c.conflict("spec.versions", "the definitions have no version in common")
	} else if !slices.ContainsFunc(result, func(v version) bool { return v.Storage }) {
		result[0].Storage = true
	}
	return result
}

func (c *comparison) compareVersion(a, b *version) version {
	c.version = a.Name
	defer func() { c.version = "" }()
	lcd := *a.DeepCopy()
	if lcd.Served = a.Served && b.Served; a.Served && !b.Served {
		c.narrowed("", "is no longer served")
	}
	lcd.AdditionalPrinterColumns = slices.DeleteFunc(lcd.AdditionalPrinterColumns,
		func(column apiextensionsv1.CustomResourceColumnDefinition) bool {
			return !slices.ContainsFunc(b.AdditionalPrinterColumns, func(other apiextensionsv1.CustomResourceColumnDefinition) bool {
				return column.Name == other.Name && column.JSONPath == other.JSONPath && column.Type == other.Type
			})
		})
	lcd.SelectableFields = slices.DeleteFunc(lcd.SelectableFields, func(f apiextensionsv1.SelectableField) bool {
		removed := !slices.Contains(b.SelectableFields, f)
		if removed {
			c.narrowed("", "field selectors can no longer use %s", f.JSONPath)
		}
		return removed
	})
	lcd.Subresources = c.subresources(a.Subresources, b.Subresources)
	schema := c.schema(place{root: true}, a.Schema.OpenAPIV3Schema, b.Schema.OpenAPIV3Schema)
	lcd.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}
	return lcd
}

// subresources compares subresources. Adding or removing the status subresource is a conflict: with it, updates of an object do not
// change its status.
func (c *comparison) subresources(a, b *apiextensionsv1.CustomResourceSubresources) *apiextensionsv1.CustomResourceSubresources {
	none := &apiextensionsv1.CustomResourceSubresources{}
	if a == nil {
		a = none
	}
	if b == nil {
		b = none
	}
	switch {
	case a.Status != nil && b.Status == nil:
		c.conflict("status", "the status subresource is removed")
	case a.Status == nil && b.Status != nil:
		c.conflict("status", "the status subresource is added: updates of objects no longer change their status")
	}
	lcd := a.DeepCopy()
	if a.Scale != nil && !reflect.DeepEqual(a.Scale, b.Scale) {
		lcd.Scale = nil
		if b.Scale == nil {
			c.narrowed("", "the scale subresource is removed")
		} else {
			c.narrowed("", "the paths of the scale subresource change")
		}
	}
	if *lcd == *none {
		return nil
	}
	return lcd
}
