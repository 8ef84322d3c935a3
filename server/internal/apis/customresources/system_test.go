package customresources

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

func TestTheDefinitionsOfTheServerAreValid(t *testing.T) {
	all, err := SystemDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, v1 := range all {
		crd := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, crd, nil); err != nil {
			t.Fatal(err)
		}
		if errs := ValidateDefinition(context.Background(), crd); len(errs) > 0 {
			t.Errorf("%s: %v", crd.Name, errs.ToAggregate())
		}
	}
}

// structuralOf returns the schema of a version of a system definition.
func structuralOf(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, version string) *schema.Structural {
	t.Helper()
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	structural, err := Structural(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return structural
}

// broken returns the errors of the rules of a schema for a value.
func broken(s *schema.Structural, value map[string]any) string {
	errs, _ := cel.NewValidator(s, false, celconfig.PerCallLimit).Validate(context.Background(), nil, s, value, nil, celconfig.RuntimeCELCostBudget)
	return fmt.Sprint(errs.ToAggregate())
}

// Go clients send a struct with omitempty as {} when it is not set.
func TestRulesAcceptEmptyOptionalStructs(t *testing.T) {
	// pointers are sent only when they are set, in every version of the types of clients.
	pointers := []string{"limitAllowedChildren", "limitAllowedParents"}
	var visit func(where string, s *schema.Structural)
	visit = func(where string, s *schema.Structural) {
		for name, property := range s.Properties {
			required := property.ValueValidation != nil && len(property.ValueValidation.Required) > 0 || s.ValueValidation != nil && slices.Contains(s.ValueValidation.Required, name)
			if !required && property.Type == "object" && len(property.XValidations) > 0 && !slices.Contains(pointers, name) {
				if got := broken(&property, map[string]any{}); got != "<nil>" {
					t.Errorf("%s.%s: {} is refused: %s", where, name, got)
				}
			}
			visit(where+"."+name, &property)
		}
		if s.Items != nil {
			visit(where+"[]", s.Items)
		}
	}
	all, err := SystemDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all {
		for _, version := range crd.Spec.Versions {
			visit(crd.Name+" "+version.Name, structuralOf(t, crd, version.Name))
		}
	}
}

func TestInvalidAuthenticationConfigurationsHaveKnownErrors(t *testing.T) {
	crd, err := System("workspaceauthenticationconfigurations.tenancy.kcp.io")
	if err != nil {
		t.Fatal(err)
	}
	s := structuralOf(t, crd, "v1alpha1")
	for mappings, want := range map[string]string{
		`{username: {claim: sub}, groups: {}, uid: {}}`:               "",
		`{username: {expression: claims.sub}}`:                        "",
		`{username: {}}`:                                              "claim or expression is required",
		`{username: {claim: sub, expression: x}}`:                     "claim and expression cannot both be specified",
		`{username: {claim: sub}, groups: {claim: a, expression: x}}`: "claim and expression cannot both be specified",
		`{username: {claim: sub}, uid: {claim: a, expression: x}}`:    "claim and expression cannot both be specified",
		`{username: {expression: x, prefix: p}}`:                      "prefix can only be specified when claim is specified",
		`{username: {claim: sub}, groups: {prefix: p}}`:               "prefix can only be specified when claim is specified",
	} {
		refusal(t, s, "{claimMappings: "+mappings+"}", want)
	}
	for rule, want := range map[string]string{
		`{claim: hd, requiredValue: x}`:             "",
		`{expression: x, message: m}`:               "",
		`{}`:                                        "claim or expression is required",
		`{claim: hd, expression: x}`:                "claim and expression cannot both be specified",
		`{expression: x, requiredValue: x}`:         "requiredValue can only be specified when claim is specified",
		`{claim: hd, requiredValue: x, message: m}`: "message can only be specified when expression is specified",
	} {
		refusal(t, s, "{claimMappings: {username: {claim: sub}}, claimValidationRules: ["+rule+"]}", want)
	}
}

func refusal(t *testing.T, s *schema.Structural, jwt, want string) {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte("spec: {jwt: ["+jwt+"]}"), &object); err != nil {
		t.Fatal(err)
	}
	if got := broken(s, object); (want == "") != (got == "<nil>") || !strings.Contains(got, want) {
		t.Errorf("%s: got %s, want %q", jwt, got, want)
	}
}
