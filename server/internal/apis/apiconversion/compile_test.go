package apiconversion

import (
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
)

func TestCompileRejectsInvalidRules(t *testing.T) {
	const v1 = "a: {type: string}\nnumber: {type: integer}\nlist: {type: array, items: {type: object, properties: {x: {type: string}}}}\nobject: {type: object, properties: {x: {type: string}}}"
	const v2 = "b: {type: string}\nnumber: {type: integer}\nlist: {type: array, items: {type: string}}\nobject: {type: object, properties: {x: {type: string}}}\nmap: {type: object, additionalProperties: {type: integer}}"
	one := func(field, destination, transformation string) *apisv1alpha1.APIConversionSpec {
		return between([]apisv1alpha1.APIConversionRule{{Field: field, Destination: destination, Transformation: transformation}}, nil)
	}
	for name, tc := range map[string]struct {
		spec *apisv1alpha1.APIConversionSpec
		want []string // each must be in one of the errors
	}{
		"an unknown version": {&apisv1alpha1.APIConversionSpec{Conversions: []apisv1alpha1.APIVersionConversion{{From: "v1", To: "v7"}}},
			[]string{`spec.conversions[0].to: Unsupported value: "v7": supported values: "v1", "v2"`}},
		"a version and itself": {&apisv1alpha1.APIConversionSpec{Conversions: []apisv1alpha1.APIVersionConversion{{From: "v1", To: "v1"}}},
			[]string{`spec.conversions[0].to: Invalid value: "v1": must differ from the version in from`}},
		"a conversion twice": {&apisv1alpha1.APIConversionSpec{Conversions: []apisv1alpha1.APIVersionConversion{{From: "v1", To: "v2"}, {From: "v1", To: "v2"}}},
			[]string{`spec.conversions[1]: Duplicate value: "v1 to v2"`}},
		"no way back": {&apisv1alpha1.APIConversionSpec{Conversions: []apisv1alpha1.APIVersionConversion{{From: "v1", To: "v2"}}},
			[]string{`spec.conversions: Required value: a conversion from v2 to v1 is required; its rules may be empty`}},
		"no path":                             {one("spec..a", "spec.b", ""), []string{`spec.conversions[0].rules[0].field: Invalid value: "spec..a": path`}},
		"no such field":                       {one("spec.z.y", "spec.b", ""), []string{`rules[0].field: Invalid value: "spec.z.y": version v1 has no field spec.z`}},
		"no such destination":                 {one("spec.a", "spec.a", ""), []string{`rules[0].destination: Invalid value: "spec.a": version v2 has no field spec.a`}},
		"a field in a scalar":                 {one("spec.a.x", "spec.b", ""), []string{`version v1 has no field spec.a.x`}},
		"a path into a list":                  {one("spec.list.x", "spec.b", ""), []string{`spec.list is a list; a rule must address the whole list`}},
		"metadata":                            {one("metadata.name", "spec.b", ""), []string{`apiVersion, kind and metadata are not converted`}},
		"another type":                        {one("spec.number", "spec.b", ""), []string{`is string, but the field spec.number is integer; add a transformation`}},
		"a list of other items":               {one("spec.list", "spec.list", ""), []string{`is list of string, but the field spec.list is list of object; add a transformation`}},
		"no CEL":                              {one("spec.a", "spec.b", "self +"), []string{`rules[0].transformation: Invalid value: "self +": ERROR: <input>:1:7: Syntax error`}},
		"a type error":                        {one("spec.a", "spec.b", "self + 1"), []string{`found no matching overload for '_+_' applied to '(string, int)'`}},
		"a field that the type does not have": {one("spec.object", "spec.b", "self.y"), []string{`undefined field 'y'`}},
		"an item's field":                     {one("spec.list", "spec.list", "self.map(i, i.y)"), []string{`undefined field 'y'`}},
		"a result of another type":            {one("spec.a", "spec.b", "size(self)"), []string{`the expression returns int, but the destination is string`}},
		"an optional of another type":         {one("spec.a", "spec.b", "optional.of(1)"), []string{`the expression returns optional_type(int), but the destination is string`}},
		"a list of another type":              {one("spec.a", "spec.list", "[1]"), []string{`the expression returns list(int), but the destination is list of string`}},
		"a map of another type":               {one("spec.a", "spec.map", "{'a': 'b'}"), []string{`the expression returns map(string, string), but the destination is object`}},
		"unknown variables":                   {one("spec.a", "spec.b", "object.spec.a"), []string{`undeclared reference to 'object'`}},
		"two rules for a destination": {between([]apisv1alpha1.APIConversionRule{{Field: "spec.a", Destination: "spec.b"}, {Field: ".spec.a", Destination: ".spec[\"b\"]"}}, nil),
			[]string{`spec.conversions[0].rules[1].destination: Duplicate value: "spec.b"`}},
		"a rule that writes into another's result": {between([]apisv1alpha1.APIConversionRule{{Field: "spec.a", Destination: "spec.object", Transformation: "{'x': self}"}, {Field: "spec.a", Destination: "spec.object.x"}}, nil),
			[]string{`spec.conversions[0].rules: Invalid value: "spec.object.x": the destination is inside spec.object, which the transformation of another rule writes`}},
		"nothing to preserve": {&apisv1alpha1.APIConversionSpec{Conversions: []apisv1alpha1.APIVersionConversion{{From: "v1", To: "v2", Preserve: []string{"spec.a", "spec.b"}}, {From: "v2", To: "v1"}}},
			[]string{`spec.conversions[0].preserve[1]: Invalid value: "spec.b": version v1 has no field spec.b`}},
		"many things at once": {between([]apisv1alpha1.APIConversionRule{{Field: "spec.z", Destination: "spec.b"}}, []apisv1alpha1.APIConversionRule{{Field: "spec.b", Destination: "spec.a", Transformation: "1"}}),
			[]string{`spec.conversions[0].rules[0].field`, `spec.conversions[1].rules[0].transformation`}},
	} {
		t.Run(name, func(t *testing.T) {
			converter, errs := Compile(tc.spec, map[string]*structuralschema.Structural{"v1": structural(t, v1), "v2": structural(t, v2)}, Options{Environment: "NewExpressions"})
			if converter != nil || len(errs) != len(tc.want) {
				t.Fatalf("%d errors: %v", len(errs), errs)
			}
			for i, want := range tc.want {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("%q is not in: %v", want, errs[i])
				}
			}
		})
	}
}

func TestConversionsBetweenAllVersionsAreRequired(t *testing.T) {
	schema := structural(t, "a: {type: string}")
	schemas := map[string]*structuralschema.Structural{"v1": schema, "v2": schema, "v3": schema}
	_, errs := Compile(between(nil, nil), schemas, Options{})
	if len(errs) != 4 {
		t.Errorf("%v", errs)
	}
	if _, errs := Compile(&apisv1alpha1.APIConversionSpec{}, map[string]*structuralschema.Structural{"v1": schema}, Options{}); len(errs) > 0 {
		t.Errorf("a single version needs no conversion: %v", errs)
	}
}

func TestTheNumberOfRulesOfAConversionIsLimited(t *testing.T) {
	rules := func(n int, transformation string) []apisv1alpha1.APIConversionRule {
		all := make([]apisv1alpha1.APIConversionRule, n)
		for i := range all {
			all[i] = apisv1alpha1.APIConversionRule{Field: "spec.a", Destination: "spec.a", Transformation: transformation}
		}
		return all
	}
	schemas := map[string]*structuralschema.Structural{"v1": structural(t, "a: {type: string}"), "v2": structural(t, "a: {type: string}")}
	for want, spec := range map[string]*apisv1alpha1.APIConversionSpec{
		"spec.conversions[0].rules: Too many: 501: must have at most 500 items":                  between(rules(MaxRules+1, ""), nil),
		"spec.conversions: Forbidden: has 202 transformations; at most 200 are allowed":          between(rules(101, "self"), rules(101, "self")),
		"spec.conversions[1].rules[0].transformation: Too long: may not be more than 8192 bytes": between(nil, rules(1, strings.Repeat(" ", maxTransformation)+"self")),
	} {
		if _, errs := Compile(spec, schemas, Options{}); len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("got %v, want %s", errs, want)
		}
	}
}
