package compat

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// widgets returns a definition with one version, whose spec has the given schema in YAML.
func widgets(t testing.TB, spec string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(`
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, kind: Widget}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: `+spec+`}}
`), crd); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return crd
}

func specOf(crd *apiextensionsv1.CustomResourceDefinition) schema {
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
}

func TestCompareSchemas(t *testing.T) {
	for _, row := range []struct{ name, existing, updated, finding, lcd string }{
		{"nothing changes", `{type: string, pattern: ^a}`, `{type: string, pattern: ^a}`, ``, `{type: string, pattern: ^a}`},
		{"documentation changes", `{type: string, description: a}`, `{type: string, description: b}`, ``, `{type: string, description: a}`},

		{"other type", `{type: string}`, `{type: integer}`, `! spec: type changes from string to integer`, ``},
		{"number becomes integer", `{type: number}`, `{type: integer}`, `spec: type changes from number to integer`, `{type: integer}`},
		{"integer becomes number", `{type: integer}`, `{type: number}`, ``, `{type: integer}`},
		{"int-or-string becomes string", `{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}`, `{type: string}`,
			`type changes from an integer or a string to string`, `{type: string}`},
		{"integer becomes int-or-string", `{type: integer}`, `{x-kubernetes-int-or-string: true}`, ``, `{type: integer}`},
		{"both ways to write int-or-string", `{x-kubernetes-int-or-string: true}`,
			`{x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}, {maxLength: 3}]}`,
			`a condition in allOf is added`, `{x-kubernetes-int-or-string: true, allOf: [{maxLength: 3}]}`},
		{"anything gets a type", `{x-kubernetes-preserve-unknown-fields: true}`, `{type: array, items: {type: string}}`,
			`type changes from anything to array`, `{type: array, items: {type: string}}`},

		{"field removed", `{type: object, properties: {a: {type: string}, b: {type: string}}}`, `{type: object, properties: {a: {type: string}}}`,
			`spec.b: is removed`, `{type: object, properties: {a: {type: string}}}`},
		{"field added", `{type: object, properties: {a: {type: string}}}`, `{type: object, properties: {a: {type: string}, b: {type: string, default: x}}}`,
			``, `{type: object, properties: {a: {type: string}}}`},
		{"all fields removed", `{type: object, properties: {a: {type: string}}}`, `{type: object}`, `spec.a: is removed`, `{type: object}`},
		{"required field removed", `{type: object, required: [a], properties: {a: {type: string}, b: {type: string}}}`,
			`{type: object, properties: {b: {type: string}}}`, `! spec.a: is required, but exists only in the existing definition`, ``},
		{"required field added", `{type: object, properties: {b: {type: string}}}`,
			`{type: object, required: [a], properties: {a: {type: string}, b: {type: string}}}`, `! spec.a: is required, but exists only in the new definition`, ``},
		{"default removed with its field, where a rule may look at it",
			`{type: object, maxProperties: 1, properties: {a: {type: string, default: x}, b: {type: string}}}`,
			`{type: object, properties: {b: {type: string}}}`, `! spec.a: has a default in the existing definition`, ``},

		{"properties become a map", `{type: object, properties: {a: {type: string}}}`, `{type: object, additionalProperties: {type: string, maxLength: 3}}`,
			`spec.a: maxLength of 3 is added`, `{type: object, properties: {a: {type: string, maxLength: 3}}}`},
		{"properties become any", `{type: object, properties: {a: {type: string}}}`, `{type: object, additionalProperties: true}`, ``,
			`{type: object, properties: {a: {type: string}}}`},
		{"a map becomes properties", `{type: object, additionalProperties: {type: string}}`, `{type: object, properties: {a: {type: string}}}`,
			`additionalProperties is removed; only fields in properties remain`, `{type: object, properties: {a: {type: string}}}`},
		{"any becomes a map", `{type: object, additionalProperties: true}`, `{type: object, additionalProperties: {type: string}}`,
			`must match the new additionalProperties`, `{type: object, additionalProperties: {type: string}}`},
		{"any becomes nothing", `{type: object, additionalProperties: true}`, `{type: object}`, `no longer preserved`, `{type: object}`},
		{"unknown fields no longer kept", `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}}`,
			`{type: object, properties: {b: {type: string}}}`, `unknown fields are no longer preserved`, `{type: object, properties: {b: {type: string}}}`},
		{"unknown fields kept", `{type: object, properties: {b: {type: string}}}`, `{type: object, x-kubernetes-preserve-unknown-fields: true}`, ``,
			`{type: object, properties: {b: {type: string}}}`},
		{"unknown fields become known", `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}}`,
			`{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {b: {type: string}}}`,
			`spec.b: a schema is added to a field that accepted any value`,
			`{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}, b: {type: string}}}`},
		{"unknown fields and a map", `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}}`,
			`{type: object, additionalProperties: {type: string}}`, `! spec: properties together with unknown fields`, ``},

		{"field becomes required", `{type: object, properties: {a: {type: string}}}`, `{type: object, required: [a], properties: {a: {type: string}}}`,
			`spec.a: becomes required`, `{type: object, required: [a], properties: {a: {type: string}}}`},
		{"field becomes required with a default", `{type: object, properties: {a: {type: string}}}`,
			`{type: object, required: [a], properties: {a: {type: string, default: x}}}`, `spec.a: default "x" is added`,
			`{type: object, required: [a], properties: {a: {type: string, default: x}}}`},
		{"field becomes optional", `{type: object, required: [a], properties: {a: {type: string}}}`, `{type: object, properties: {a: {type: string}}}`,
			``, `{type: object, required: [a], properties: {a: {type: string}}}`},
		{"null refused", `{type: string, nullable: true}`, `{type: string}`, `null is no longer accepted`, `{type: string}`},
		{"null accepted", `{type: string}`, `{type: string, nullable: true}`, ``, `{type: string}`},

		{"default changes", `{type: object, properties: {a: {type: string, default: x}}}`, `{type: object, properties: {a: {type: string, default: "y"}}}`,
			`spec.a: default changes from "x" to "y"`, `{type: object, properties: {a: {type: string, default: x}}}`},
		{"default refused by the other", `{type: object, properties: {a: {type: string, default: abc}}}`,
			`{type: object, properties: {a: {type: string, maxLength: 1}}}`, `spec.a: default "abc" is removed`,
			`{type: object, required: [a], properties: {a: {type: string, maxLength: 1}}}`},

		{"rule added", `{type: string}`, `{type: string, x-kubernetes-validations: [{rule: self != "x"}]}`, `rule is added: self != "x"`,
			`{type: string, x-kubernetes-validations: [{rule: self != "x"}]}`},
		{"rule removed", `{type: string, x-kubernetes-validations: [{rule: self != "x"}]}`, `{type: string}`, ``,
			`{type: string, x-kubernetes-validations: [{rule: self != "x"}]}`},
		{"rule about a field that is dropped", `{type: object, properties: {a: {type: string}}, x-kubernetes-validations: [{rule: has(self.a)}]}`,
			`{type: object}`, `spec.a: is removed`,
			`{type: object, properties: {a: {type: string, not: {}}}, x-kubernetes-validations: [{rule: has(self.a)}]}`},
		{"rule about a field that is added", `{type: object, properties: {a: {type: string}}}`,
			`{type: object, properties: {a: {type: string}, b: {type: string}}, x-kubernetes-validations: [{rule: has(self.a) || has(self.b)}]}`,
			`rule is added`,
			`{type: object, properties: {a: {type: string}, b: {type: string, not: {}}}, x-kubernetes-validations: [{rule: has(self.a) || has(self.b)}]}`},
		{"field that was forbidden is gone", `{type: object, properties: {a: {type: string}, b: {type: string, not: {}}}}`,
			`{type: object, properties: {a: {type: string}}}`, ``, `{type: object, properties: {a: {type: string}}}`},
		{"rule that does not suit the narrower type", `{type: number, x-kubernetes-validations: [{rule: self * 2.0 < 3.0}]}`, `{type: integer}`,
			`! the least common denominator is invalid`, ``},

		{"maximum falls", `{type: integer, maximum: 5}`, `{type: integer, maximum: 3}`, `maximum changes from 5 to 3`, `{type: integer, maximum: 3}`},
		{"maximum rises", `{type: integer, maximum: 3}`, `{type: integer, maximum: 5}`, ``, `{type: integer, maximum: 3}`},
		{"maximum is excluded", `{type: integer, maximum: 3}`, `{type: integer, maximum: 3, exclusiveMaximum: true}`, `maximum of 3 becomes exclusive`,
			`{type: integer, maximum: 3, exclusiveMaximum: true}`},
		{"minimum appears", `{type: integer}`, `{type: integer, minimum: 1}`, `minimum of 1 is added`, `{type: integer, minimum: 1}`},
		{"no number in common", `{type: integer, minimum: 5}`, `{type: integer, maximum: 3}`, `! spec: no number is valid for both`, ``},
		{"multiples of both", `{type: integer, multipleOf: 2}`, `{type: integer, multipleOf: 3}`, `multipleOf changes from 2 to 3`,
			`{type: integer, multipleOf: 2, allOf: [{multipleOf: 3}]}`},
		{"multiples of the larger", `{type: integer, multipleOf: 2}`, `{type: integer, multipleOf: 4}`, `multipleOf changes`, `{type: integer, multipleOf: 4}`},
		{"lengths", `{type: string, minLength: 1, maxLength: 9}`, `{type: string, minLength: 2, maxLength: 5}`, `maxLength changes from 9 to 5`,
			`{type: string, minLength: 2, maxLength: 5}`},
		{"items", `{type: array, maxItems: 4, items: {type: string}}`, `{type: array, minItems: 1, maxItems: 2, items: {type: string, maxLength: 3}}`,
			`spec[*]: maxLength of 3 is added`, `{type: array, minItems: 1, maxItems: 2, items: {type: string, maxLength: 3}}`},
		{"numbers of fields", `{type: object, maxProperties: 4, additionalProperties: {type: string}}`,
			`{type: object, minProperties: 1, maxProperties: 2, additionalProperties: {type: string}}`, `maxProperties changes from 4 to 2`,
			`{type: object, minProperties: 1, maxProperties: 2, additionalProperties: {type: string}}`},
		{"pattern changes", `{type: string, pattern: ^a}`, `{type: string, pattern: z$}`, `pattern changes from ^a to z$`,
			`{type: string, pattern: ^a, allOf: [{pattern: z$}]}`},
		{"format appears", `{type: string}`, `{type: string, format: ipv4}`, `format changes from "" to "ipv4"`, `{type: string, format: ipv4}`},
		{"format of an integer", `{type: integer, format: int64}`, `{type: integer, format: int32}`, `format changes`, `{type: integer, format: int32}`},
		{"format of an integer widens", `{type: integer, format: int32}`, `{type: integer, format: int64}`, ``, `{type: integer, format: int32}`},
		{"format with a rule", `{type: string, x-kubernetes-validations: [{rule: self != "x"}]}`, `{type: string, format: date-time}`,
			`! spec: format changes from "" to "date-time", which may change the meaning`, ``},

		{"enum shrinks", `{type: string, enum: [a, b]}`, `{type: string, enum: [b, c]}`, `enum value "a" is removed`, `{type: string, enum: [b]}`},
		{"enum with nothing in common", `{type: string, enum: [a]}`, `{type: string, enum: [b]}`, `! spec: no value is valid for both`, ``},
		{"enum appears", `{type: string}`, `{type: string, enum: [b]}`, `enum "b" is added`, `{type: string, enum: [b]}`},
		{"enum is dropped", `{type: string, enum: [a]}`, `{type: string}`, ``, `{type: string, enum: [a]}`},

		{"anyOf appears", `{type: string}`, `{type: string, anyOf: [{pattern: a}, {pattern: b}]}`, `anyOf changes`,
			`{type: string, anyOf: [{pattern: a}, {pattern: b}]}`},
		{"oneOf changes", `{type: string, oneOf: [{pattern: a}]}`, `{type: string, oneOf: [{pattern: b}]}`, `oneOf changes`,
			`{type: string, oneOf: [{pattern: a}], allOf: [{oneOf: [{pattern: b}]}]}`},
		{"not changes", `{type: string, not: {pattern: a}}`, `{type: string, not: {pattern: b}}`, `not changes`,
			`{type: string, not: {pattern: a}, allOf: [{not: {pattern: b}}]}`},
		{"allOf is dropped", `{type: string, allOf: [{pattern: a}]}`, `{type: string}`, ``, `{type: string, allOf: [{pattern: a}]}`},

		{"list type changes", `{type: array, items: {type: string}}`, `{type: array, x-kubernetes-list-type: set, items: {type: string}}`,
			`! spec: x-kubernetes-list-type changes from atomic to set`, ``},
		{"map keys change",
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a], items: {type: object, required: [a, b], properties: {a: {type: string}, b: {type: string}}}}`,
			`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a, b], items: {type: object, required: [a, b], properties: {a: {type: string}, b: {type: string}}}}`,
			`! spec: x-kubernetes-list-map-keys change`, ``},
		{"map type changes", `{type: object, properties: {a: {type: string}}}`, `{type: object, x-kubernetes-map-type: atomic, properties: {a: {type: string}}}`,
			`! spec: x-kubernetes-map-type changes from granular to atomic`, ``},
		{"embedded resource", `{type: object, x-kubernetes-preserve-unknown-fields: true}`,
			`{type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}`,
			`! spec: x-kubernetes-embedded-resource changes`, ``},
	} {
		t.Run(row.name, func(t *testing.T) {
			result, err := Compare(widgets(t, row.existing), widgets(t, row.updated), Options{})
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, f := range result.Findings {
				mark := ""
				if f.Conflict {
					mark = "! "
				}
				found = append(found, mark+strings.TrimPrefix(f.String(), "v1: "))
			}
			if text := strings.Join(found, "\n"); (row.finding == "") != (text == "") || !strings.Contains(text, row.finding) {
				t.Errorf("found %q, want %q", text, row.finding)
			}
			if row.lcd == "" {
				if result.LCD != nil {
					t.Errorf("unexpected least common denominator: %+v", specOf(result.LCD))
				}
				return
			}
			if result.LCD == nil {
				t.Fatalf("no least common denominator: %q", found)
			}
			if diff := cmp.Diff(specOf(widgets(t, row.lcd)), specOf(result.LCD)); diff != "" {
				t.Errorf("the least common denominator (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompareDefinitions(t *testing.T) {
	type spec = apiextensionsv1.CustomResourceDefinitionSpec
	type change = func(*spec)
	status := &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	scale := func(path string) *apiextensionsv1.CustomResourceSubresources {
		return &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: path, StatusReplicasPath: ".status.replicas"}}
	}
	second := func(s *spec) {
		v := *s.Versions[0].DeepCopy()
		v.Name, v.Storage = "v2", false
		s.Versions = append(s.Versions, v)
	}
	keep := func(*spec) {}
	for _, row := range []struct {
		name              string
		existing, updated change
		finding           string
		check             func(*spec) bool
	}{
		{"scope", keep, func(s *spec) { s.Scope = apiextensionsv1.ClusterScoped },
			`! spec.scope: changes from "Namespaced" to "Cluster"`, nil},
		{"kind", keep, func(s *spec) { s.Names.Kind, s.Names.ListKind = "Gadget", "WidgetList" },
			`! spec.names.kind: changes from "Widget" to "Gadget"`, nil},
		{"short names", func(s *spec) { s.Names.ShortNames = []string{"wg", "w"} },
			func(s *spec) { s.Names.ShortNames = []string{"w", "x"} }, `spec.names.shortNames: "wg" is removed`,
			func(s *spec) bool {
				return len(s.Names.ShortNames) == 1 && s.Names.ShortNames[0] == "w"
			}},
		{"status", keep, func(s *spec) { s.Versions[0].Subresources = status },
			"! v1: status: the status subresource is added", nil},
		{"scale", func(s *spec) { s.Versions[0].Subresources = scale(".spec.a") },
			func(s *spec) { s.Versions[0].Subresources = scale(".spec.b") },
			"v1: the paths of the scale subresource change", func(s *spec) bool { return s.Versions[0].Subresources == nil }},
		{"version removed", second, keep, "spec.versions: version v2 is removed",
			func(s *spec) bool { return len(s.Versions) == 1 }},
		{"storage version removed", func(s *spec) {
			second(s)
			s.Versions[0].Storage, s.Versions[1].Storage = false, true
		}, keep, "spec.versions: version v2 is removed", func(s *spec) bool { return s.Versions[0].Storage }},
		{"no version in common", keep, func(s *spec) { s.Versions[0].Name = "v3" },
			"! spec.versions: the definitions have no version in common", nil},
		{"version added", keep, second, "", func(s *spec) bool { return len(s.Versions) == 1 }},
		{"not served", second, func(s *spec) {
			second(s)
			s.Versions[1].Served = false
		}, "v2: is no longer served", func(s *spec) bool { return !s.Versions[1].Served }},
		{"columns", func(s *spec) {
			s.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "A", Type: "string", JSONPath: ".spec"}}
		}, keep, "", func(s *spec) bool {
			return len(s.Versions[0].AdditionalPrinterColumns) == 0
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			existing, updated := widgets(t, "{type: string}"), widgets(t, "{type: string}")
			row.existing(&existing.Spec)
			row.updated(&updated.Spec)
			result, err := Compare(existing, updated, Options{})
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for _, f := range result.Findings {
				if f.Conflict {
					text += "! "
				}
				text += f.String() + "\n"
			}
			if (text == "") != (row.finding == "") || !strings.Contains(text, row.finding) {
				t.Errorf("found %q, want %q", text, row.finding)
			}
			if (row.check == nil) != (result.LCD == nil) || (row.check != nil && !row.check(&result.LCD.Spec)) {
				t.Errorf("the least common denominator is %+v", result.LCD)
			}
		})
	}
}

func TestCompareVersions(t *testing.T) {
	existing, updated := widgets(t, "{type: number}"), widgets(t, "{type: integer}")
	updated.Spec.Versions[0].Name = "v2"
	result, err := Compare(existing, updated, Options{ExistingVersion: "v1", NewVersion: "v2"})
	if err != nil || len(result.Findings) != 1 || result.LCD.Spec.Versions[0].Name != "v1" || specOf(result.LCD).Type != "integer" {
		t.Errorf("%+v, %v", result, err)
	}
	if _, err := Compare(existing, updated, Options{ExistingVersion: "v1", NewVersion: "v1"}); err == nil || !strings.Contains(err.Error(), `new definition: widgets.example.com has no version "v1"`) {
		t.Error(err)
	}
}
