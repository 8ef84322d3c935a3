package admission

import (
	"context"
	"maps"
	"strings"
	"testing"
)

func bindingWith(claim string) string {
	return "spec: {reference: {export: {name: demo}}, permissionClaims: [" + claim + "]}"
}

func TestBindingsSelectInOneWayAndKeepTheirPhase(t *testing.T) {
	labelled := `
metadata: {annotations: {apis.v1alpha2.kcp.io/acceptable-permission-claims: '[{"resource":"secrets","verbs":["*"],"selector":{"matchLabels":{"app":"x"}},"state":"Accepted"}]'}}
` + bindingWith("{resource: secrets, state: Accepted}")
	for name, test := range map[string]struct {
		write
		want string
	}{
		"a claim on all objects is admitted":                                       {write{object: bindingWith("{resource: secrets, verbs: [get], state: Accepted, selector: {matchAll: true}}")}, ""},
		"a claim on labelled objects is admitted":                                  {write{object: bindingWith("{resource: secrets, verbs: [get], state: Accepted, selector: {matchLabels: {a: b}}}")}, ""},
		"an empty selector is refused":                                             {write{object: bindingWith("{resource: secrets, verbs: [get], state: Accepted, selector: {}}")}, "spec.permissionClaims[0].selector: Required value"},
		"a selector with matchAll and labels is refused":                           {write{object: bindingWith("{resource: secrets, verbs: [get], state: Accepted, selector: {matchAll: true, matchLabels: {a: b}}}")}, "matchAll excludes"},
		"an operator that does not exist is refused":                               {write{object: bindingWith(`{resource: secrets, verbs: [get], state: Accepted, selector: {matchExpressions: [{key: a, operator: Like}]}}`)}, "not a valid label selector operator"},
		"claims beyond the limit are refused":                                      {write{object: bindingWith("{resource: secrets, verbs: [" + strings.Repeat("x", claimsLimit) + "], state: Accepted, selector: {matchAll: true}}")}, "spec.permissionClaims: Too long"},
		"annotations beyond the limit are refused":                                 {write{object: "metadata: {annotations: {mine: " + strings.Repeat("x", annotationsLimit) + "}}"}, "metadata.annotations: Too long"},
		"in v1alpha1, a claim on all objects is admitted":                          {write{version: "v1alpha1", object: bindingWith("{resource: secrets, all: true, state: Accepted}")}, ""},
		"in v1alpha1, a claim on names is admitted":                                {write{version: "v1alpha1", object: bindingWith("{resource: secrets, resourceSelector: [{name: a}], state: Accepted}")}, ""},
		"in v1alpha1, the same claim twice is refused":                             {write{version: "v1alpha1", object: bindingWith("{resource: secrets, all: true, state: Accepted}, {resource: secrets, all: true, state: Rejected}")}, "spec.permissionClaims[1]: Duplicate value"},
		"in v1alpha1, an unchanged selector is admitted":                           {write{version: "v1alpha1", object: labelled, before: labelled}, ""},
		"in v1alpha1, an update without the annotation of the selector is refused": {write{version: "v1alpha1", object: bindingWith("{resource: secrets, all: true, state: Accepted}"), before: labelled}, "v1alpha1 cannot change the selector"},
		"in v1alpha1, an annotation of another claim is refused":                   {write{version: "v1alpha1", object: strings.Replace(labelled, "{resource: secrets, state", "{resource: configmaps, all: true, state", 1)}, "has no claim"},
		"a binding becomes bound":                                                  {write{subresource: "status", object: "{status: {phase: Bound}}", before: "{status: {phase: Binding}}"}, ""},
		"a phase that is unset is refused":                                         {write{subresource: "status", object: "{status: {}}", before: "{status: {phase: Bound}}"}, "the binding is Bound already"},
		"in v1alpha1, a phase that is unset is refused":                            {write{version: "v1alpha1", subresource: "status", object: "{status: {}}", before: "{status: {phase: Binding}}"}, "the binding is Binding already"},
	} {
		t.Run(name, func(t *testing.T) { wantInvalid(t, bindingRules{}, test.attributes(t, "APIBinding"), test.want) })
	}
}

func TestTheStatusOfABindingIsNotWrittenThroughAnnotations(t *testing.T) {
	const kept, forged = "apis.v1alpha2.kcp.io/status-applied-permission-claims", "apis.v1alpha2.kcp.io/status-export-permission-claims"
	a := write{
		version: "v1alpha1", object: "metadata: {annotations: {mine: new, " + kept + ": forged, " + forged + ": forged}}",
		before: "metadata: {annotations: {" + kept + ": true claims}}",
	}.attributes(t, "APIBinding")
	if err := (bindingRules{}).Admit(context.Background(), a, nil); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"mine": "new", kept: "true claims"}
	if got := annotations(a.GetObject()); !maps.Equal(got, want) {
		t.Errorf("the annotations are %v, want %v", got, want)
	}
}
