package limits

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

type props = apiextensionsv1.JSONSchemaProps

// definition has one version with a schema, which may be empty, and columns.
func definition(spec *props, columns ...string) *apiextensionsv1.CustomResourceDefinition {
	version := apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1"}
	if spec != nil {
		version.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: object("spec", spec)}
	}
	for _, path := range columns {
		version.AdditionalPrinterColumns = append(version.AdditionalPrinterColumns, apiextensionsv1.CustomResourceColumnDefinition{Name: path, Type: "string", JSONPath: path})
	}
	return &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version}}}
}

func object(name string, property *props) *props {
	return &props{Type: "object", Properties: map[string]props{name: *property}}
}

func list(items *props) *props {
	return &props{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: items}}
}

func text(s *props, value string) *props {
	s.Type = "string"
	s.Default = &apiextensionsv1.JSON{Raw: []byte(value)}
	return s
}

func raw(value any) *apiextensionsv1.JSON {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return &apiextensionsv1.JSON{Raw: content}
}

// laughs returns a schema whose default is a list, whose items have a default that is a list, and so on.
func laughs(levels int) *props {
	if levels == 0 {
		return &props{Type: "string"}
	}
	items := object("x", laughs(levels-1))
	s := list(items)
	s.Default = raw([]any{map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}})
	return s
}

func nested(depth int) *props {
	s := &props{Type: "string"}
	for range depth {
		s = object("a", s)
	}
	return s
}

func wide(n int) *props {
	s := &props{Type: "object", Properties: map[string]props{}}
	for i := range n {
		s.Properties[fmt.Sprint("p", i)] = props{Type: "string"}
	}
	return s
}

func TestDefinitionsAreLimited(t *testing.T) {
	many := make([]string, MaxColumns+1)
	for i := range many {
		many[i] = fmt.Sprint(".spec.a", i)
	}
	filters := make([]string, 30)
	for i := range filters {
		filters[i] = fmt.Sprintf(`.status.conditions[?(@.type=="%d")].status`, i)
	}
	for name, tc := range map[string]struct {
		crd  *apiextensionsv1.CustomResourceDefinition
		want string // must be in one of the errors; empty if there must be none
	}{
		"usual columns":             {definition(nil, ".spec.a", ".spec.hosts", `.status.conditions[?(@.type=="Ready")].status`, ".spec.list[*].name", ".spec.list[0:2].x", `.metadata.labels['a\.b/c']`, ".spec['a','b']", ".metadata.creationTimestamp"), ""},
		"a column that is no path":  {definition(nil, ".spec[", ".spec[?(@.a"), ""}, // upstream prints nothing
		"recursive descent":         {definition(nil, ".spec..a..a..a..a"), `spec.versions[0].additionalPrinterColumns[0].jsonPath: Invalid value: ".spec..a..a..a..a": ".." is not supported`},
		"one descent":               {definition(nil, "..a"), `".." is not supported`},
		"descent in a filter":       {definition(nil, ".spec.list[?(@..a)].b"), `".." is not supported`},
		"descent in a union":        {definition(nil, ".spec[0,..a]"), ""}, // is no path
		"ranges":                    {definition(nil, ".a}{range .b[*]}{.c}{end}{.d"), "braces are not supported"},
		"unions that multiply":      {definition(nil, ".spec[0,0][0,0][0,0][0,0][0,0]"), "unions may have at most 16 results"},
		"filters within each other": {definition(nil, `.a[?(@.b[?(@.b[?(@.b[?(@.b[?(@.b)])])])])]`), ""}, // the parser ends the filter at the first )
		"many columns":              {definition(nil, many...), "spec.versions[0].additionalPrinterColumns: Too many: 33: must have at most 32 items"},
		"many filters":              {definition(nil, filters...), "the columns of this version together exceed a cost of 64"},
		"a long path":               {definition(nil, "."+strings.Repeat("a", MaxColumnPath)), "must have at most 1024 bytes"},
		"a usual schema":            {definition(list(object("protocol", text(&props{}, `"TCP"`)))), ""},
		"a deep schema":             {definition(nested(MaxDepth)), "schemas are nested more than 64 deep"},
		"a large schema":            {definition(wide(MaxSchemas)), "the definition has more than 25000 schemas"},
		"a long name":               {definition(object(strings.Repeat("a", MaxName+1), &props{Type: "string"})), "the name of a property has 257 bytes; at most 256 are allowed"},
		"a usual pattern":           {definition(&props{Type: "string", Pattern: `^[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?$`}), ""},
		"a large pattern":           {definition(&props{Type: "string", Pattern: strings.Repeat("[a-cx]{1000}", 10)}), "the pattern compiles to more than 5000 instructions"},
		"a nested repetition":       {definition(&props{Type: "string", Pattern: "((a{10}b{10}){10}c){10}d{1000}" + strings.Repeat("e{1000}", 4)}), "more than 5000 instructions"},
		"many patterns": {definition(&props{Type: "string", AllOf: []props{{Pattern: "a{1000}"}, {Pattern: strings.Repeat("b{1000}", 4)}, {Pattern: strings.Repeat("c{1000}", 4)}, {Pattern: strings.Repeat("d{1000}", 4)},
			{Pattern: strings.Repeat("e{1000}", 4)}, {Pattern: strings.Repeat("f{1000}", 4)}, {Pattern: strings.Repeat("g{1000}", 4)}, {Pattern: strings.Repeat("h{1000}", 4)}, {Pattern: strings.Repeat("i{1000}", 4)}}}), "the patterns of the definition compile to more than 30000"},
		"a large default":               {definition(object("a", text(&props{}, `"`+strings.Repeat("a", MaxDefaults)+`"`))), "defaults add more than 16384 bytes to each object"},
		"a large default of items":      {definition(list(object("a", text(&props{}, `"`+strings.Repeat("a", MaxItemDefaults)+`"`)))), "spec.versions[0].schema.openAPIV3Schema.properties[spec].items: Forbidden: defaults add more than 2048 bytes"},
		"the same in lists of a length": {definition(&props{Type: "array", MaxItems: ptr.To[int64](4), Items: list(object("a", text(&props{}, `"`+strings.Repeat("a", MaxItemDefaults)+`"`))).Items}), ""},
		"a large default of values":     {definition(&props{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: object("a", text(&props{}, `"`+strings.Repeat("a", MaxItemDefaults)+`"`))}}), "defaults add more than 2048 bytes"},
		"an item given as null":         {definition(list(text(&props{}, `"`+strings.Repeat("a", MaxItemDefaults)+`"`))), "the default of an item adds more than 2048 bytes"},
		"defaults that multiply":        {definition(laughs(20)), "defaults add more than 16384 bytes"},
		"a rule that makes a long text": {definition(&props{Type: "string", XValidations: apiextensionsv1.ValidationRules{{Rule: `self.replace("", self).size() > 0`}}}), "x-kubernetes-validations[0].rule: Forbidden: the second argument of replace()"},
		"an object as a default":        {definition(object("a", &props{Type: "object", Default: raw(map[string]any{})})), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if errs := Check(&tc.crd.Spec, true); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestColumnsThatExceedTheLimitsAreOmitted(t *testing.T) {
	crd := definition(nil, ".spec.a", ".spec..a", ".spec.b")
	served, errs := WithoutColumns(crd)
	if len(errs) != 1 || len(served.Spec.Versions[0].AdditionalPrinterColumns) != 2 || served.Spec.Versions[0].AdditionalPrinterColumns[1].JSONPath != ".spec.b" {
		t.Errorf("served %v, errors %v", served.Spec.Versions[0].AdditionalPrinterColumns, errs)
	}
	if len(crd.Spec.Versions[0].AdditionalPrinterColumns) != 3 {
		t.Error("the definition itself was changed")
	}
	good := definition(nil, ".spec.a")
	if served, errs := WithoutColumns(good); served != good || len(errs) != 0 {
		t.Error("a definition within the limits was copied")
	}
	if errs := Check(&crd.Spec, false); len(errs) > 0 {
		t.Errorf("without columns: %v", errs)
	}
}

func TestTheCostOfValidationIsEstimatedBeforeValidation(t *testing.T) {
	values := func(n int, value any) []any {
		all := make([]any, n)
		for i := range all {
			all[i] = value
		}
		return all
	}
	names := make([]apiextensionsv1.JSON, 20_000)
	alternatives := make([]props, 200)
	for i := range names {
		names[i] = *raw(fmt.Sprint("v", i))
	}
	for i := range alternatives {
		alternatives[i] = props{Required: []string{fmt.Sprint("r", i)}}
	}
	integers := list(&props{Type: "integer"})
	for name, tc := range map[string]struct {
		spec  *props
		value any
		want  string
	}{
		"a usual object":             {wide(100), map[string]any{"p1": "x"}, ""},
		"a large list":               {list(&props{Type: "string"}), values(100_000, "a"), ""},
		"few errors":                 {integers, values(500, "a"), ""},
		"many values, few errors":    {integers, append(values(10_000, int64(1)), "a"), ""},
		"many errors":                {integers, values(20_000, "a"), "the object has more than 2000 errors, the first are"},
		"many errors of maps":        {&props{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: integers}}, map[string]any{"a": values(20_000, "a")}, `spec.a[0]`},
		"many errors of allOf":       {&props{Type: "array", Items: integers.Items, AllOf: []props{{Items: list(&props{Maximum: ptr.To(0.0)}).Items}}}, values(20_000, int64(1)), "more than 2000 errors"},
		"items of many properties":   {list(wide(500)), values(20_000, map[string]any{}), "validation would take more than 2000 ms"},
		"items of many alternatives": {list(&props{Type: "object", AnyOf: alternatives}), values(5_000, map[string]any{}), "validation would take more than 2000 ms"},
		"items of a large enum":      {list(&props{Type: "string", Enum: names}), values(20_000, "x"), "validation would take more than 2000 ms"},
		"a pattern on a long text":   {&props{Type: "string", Pattern: "(.{0,500})*b"}, strings.Repeat("a", 1<<20), "validation would take more than 2000 ms"},
		"a usual pattern":            {&props{Type: "string", Pattern: `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`}, strings.Repeat("a", 1<<20), ""},
		"a text beyond its length":   {&props{Type: "string", Pattern: "(.{0,500})*b", MaxLength: ptr.To[int64](63)}, strings.Repeat("a", 1<<20), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := Weigh(object("spec", tc.spec)).Check(map[string]any{"spec": tc.value}); err != nil {
				got = err.Error()
			}
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
