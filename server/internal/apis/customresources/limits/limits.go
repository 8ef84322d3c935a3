package limits

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kcplane/kcp/server/internal/apis/expressions"
)

// Limits of one definition. docs/definitions.md lists them.
const (
	// MaxColumns is the number of printer columns of a version.
	MaxColumns = 32
	// MaxColumnPath is the length of the JSONPath of a column, in bytes.
	MaxColumnPath = 1024
	// maxColumnCost limits the cost of the columns of a version: how often the values of an object may be visited.
	maxColumnCost = 64
	// MaxSchemas is the number of schemas in all versions: of properties, items, alternatives.
	MaxSchemas = 25_000
	// MaxDepth is how deep schemas are nested.
	MaxDepth = 64
	// MaxName is the length of the name of a property, in bytes.
	MaxName = 256
	// MaxNames is the number of short names, and of categories.
	MaxNames = 32
	// MaxVersions is the number of versions.
	MaxVersions = 32
	// MaxPattern is the number of instructions that a pattern compiles to.
	MaxPattern = 5_000
	// MaxPatterns is the number of instructions that all patterns of a definition compile to.
	MaxPatterns = 30_000
	// MaxDefaults limits what defaults add to an object, in bytes of JSON.
	MaxDefaults = 16 << 10
	// MaxItemDefaults limits what defaults add to an item of a list or map of any length, in bytes of JSON.
	MaxItemDefaults = 2 << 10
	// MaxScalePath is the length of a path in the scale subresource and of a selectable field.
	MaxScalePath = 1024
)

// Check returns an error for each limit that a definition exceeds. If columns is false, it ignores printer columns,
// which the server omits when they exceed the limits.
func Check(spec *apiextensionsv1.CustomResourceDefinitionSpec, columns bool) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	for name, list := range map[string][]string{"shortNames": spec.Names.ShortNames, "categories": spec.Names.Categories} {
		if len(list) > MaxNames {
			errs = append(errs, field.TooMany(path.Child("names", name), len(list), MaxNames))
		}
	}
	if len(spec.Versions) > MaxVersions {
		return append(errs, field.TooMany(path.Child("versions"), len(spec.Versions), MaxVersions))
	}
	w := &walk{}
	for i := range spec.Versions {
		v, at := &spec.Versions[i], path.Child("versions").Index(i)
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			w.version(v.Schema.OpenAPIV3Schema, at.Child("schema", "openAPIV3Schema"))
		}
		if columns {
			_, problems := checkColumns(v.AdditionalPrinterColumns, at.Child("additionalPrinterColumns"))
			errs = append(errs, problems...)
		}
		errs = append(errs, checkPaths(v, at)...)
	}
	return append(errs, w.errs...)
}

func checkPaths(v *apiextensionsv1.CustomResourceDefinitionVersion, at *field.Path) (errs field.ErrorList) {
	check := func(text string, at *field.Path) {
		if len(text) > MaxScalePath {
			errs = append(errs, field.TooLong(at, "", MaxScalePath))
		}
	}
	if s := v.Subresources; s != nil && s.Scale != nil {
		scale := at.Child("subresources", "scale")
		check(s.Scale.SpecReplicasPath, scale.Child("specReplicasPath"))
		check(s.Scale.StatusReplicasPath, scale.Child("statusReplicasPath"))
		if s.Scale.LabelSelectorPath != nil {
			check(*s.Scale.LabelSelectorPath, scale.Child("labelSelectorPath"))
		}
	}
	for i, f := range v.SelectableFields {
		check(f.JSONPath, at.Child("selectableFields").Index(i).Child("jsonPath"))
	}
	return errs
}

// WithoutColumns returns the definition without the printer columns that exceed the limits, and those columns. A
// definition without such columns is returned unchanged.
func WithoutColumns(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, field.ErrorList) {
	var all field.ErrorList
	served := crd
	for i := range crd.Spec.Versions {
		at := field.NewPath("spec", "versions").Index(i).Child("additionalPrinterColumns")
		good, errs := checkColumns(crd.Spec.Versions[i].AdditionalPrinterColumns, at)
		if len(errs) == 0 {
			continue
		}
		if served == crd {
			copied := *crd
			copied.Spec.Versions = slices.Clone(crd.Spec.Versions)
			served = &copied
		}
		served.Spec.Versions[i].AdditionalPrinterColumns = good
		all = append(all, errs...)
	}
	return served, all
}

// walk visits the schemas of a definition.
type walk struct {
	schemas  int
	patterns int
	errs     field.ErrorList
}

// version checks the schema of one version.
func (w *walk) version(s *apiextensionsv1.JSONSchemaProps, at *field.Path) {
	before := len(w.errs)
	w.schema(s, at, 1)
	if len(w.errs) == before { // defaults are checked only in schemas of bounded size
		w.errs = append(w.errs, checkDefaults(s, at)...)
	}
}

// schema checks one schema and its subschemas. It stops when the limit of the number or the depth is exceeded.
func (w *walk) schema(s *apiextensionsv1.JSONSchemaProps, at *field.Path, depth int) bool {
	if w.schemas++; w.schemas > MaxSchemas {
		w.errs = append(w.errs,
			field.Forbidden(at, fmt.Sprintf("the definition has more than %d schemas; split the API, or preserve unknown fields at "+
				"this path", MaxSchemas)))
		return false
	}
	if depth > MaxDepth {
		w.errs = append(w.errs, field.Forbidden(field.NewPath("spec", "versions"), fmt.Sprintf("schemas are nested more than %d deep; preserve "+
			"unknown fields at that depth", MaxDepth)))
		return false
	}
	if s.Pattern != "" && !w.pattern(s.Pattern, at.Child("pattern")) {
		return false
	}
	for i := range s.XValidations {
		for name, text := range map[string]string{"rule": s.XValidations[i].Rule, "messageExpression": s.XValidations[i].MessageExpression} {
			if err := expressions.Check(text); err != nil {
				w.errs = append(w.errs, field.Forbidden(at.Child("x-kubernetes-validations").Index(i).Child(name), err.Error()))
				return false
			}
		}
	}
	return eachWithin(s, at, func(within *apiextensionsv1.JSONSchemaProps, at *field.Path, name string) bool {
		if len(name) > MaxName {
			w.errs = append(w.errs, field.Forbidden(at, fmt.Sprintf("the name of a property has %d bytes; at most %d are "+
				"allowed", len(name), MaxName)))
			return false
		}
		return w.schema(within, at, depth+1)
	})
}

// pattern checks the regular expression of a schema.
func (w *walk) pattern(text string, at *field.Path) bool {
	n, err := instructions(text, MaxPattern)
	if err != nil {
		return true // upstream rejects it with a better message
	}
	if n > MaxPattern {
		w.errs = append(
			w.errs,
			field.Forbidden(
				at,
				fmt.Sprintf("the pattern compiles to more than %d instructions; use maxLength instead of counted repetitions", MaxPattern),
			),
		)
		return false
	}
	if w.patterns += n; w.patterns > MaxPatterns {
		w.errs = append(w.errs,
			field.Forbidden(at, fmt.Sprintf("the patterns of the definition compile to more than %d instructions", MaxPatterns)))
		return false
	}
	return true
}

// eachWithin calls f for the direct subschemas of a schema, with the names of properties, until f returns false.
func eachWithin(s *apiextensionsv1.JSONSchemaProps, at *field.Path,
	f func(*apiextensionsv1.JSONSchemaProps, *field.Path, string) bool) bool {
	for name, property := range s.Properties {
		path := at.Child("properties")
		if len(name) <= MaxName {
			path = path.Key(name)
		}
		if !f(&property, path, name) {
			return false
		}
	}
	for i, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for j := range list {
			if !f(&list[j], at.Child([]string{"allOf", "anyOf", "oneOf"}[i]).Index(j), "") {
				return false
			}
		}
	}
	if s.Not != nil && !f(s.Not, at.Child("not"), "") {
		return false
	}
	if s.Items != nil && s.Items.Schema != nil && !f(s.Items.Schema, at.Child("items"), "") {
		return false
	}
	return s.AdditionalProperties == nil || s.AdditionalProperties.Schema == nil ||
		f(s.AdditionalProperties.Schema, at.Child("additionalProperties"), "")
}
