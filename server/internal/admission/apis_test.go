package admission

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// wantRefused checks that a plugin refuses a write with a text, or accepts it if the text is empty.
func wantRefused(t *testing.T, plugin admission.ValidationInterface, a admission.Attributes, want string) {
	t.Helper()
	err := plugin.Validate(context.Background(), a, nil)
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("accepted, but should be refused: %s", want)
	case want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want %s", err, want)
	}
}

func schemaWith(name, spec string) string {
	return fmt.Sprintf(`
metadata: {name: %s}
spec:
  scope: Cluster
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
%s`, name, spec)
}

const oneVersion = `
  versions:
  - name: v1
    served: true
    storage: true
    schema: `

func TestSchemasAreValidatedLikeDefinitions(t *testing.T) {
	good := schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`{type: object}`)
	rules := resourceSchemaRules{rules{Config{OfServer: func(r schema.GroupResource) bool { return r.Group == "builtin.example.io" }}}}
	for name, test := range map[string]struct {
		write
		want string
	}{
		"a good one":              {write{object: good}, ""},
		"of the core group":       {write{object: schemaWith("v1.widgets.core", `  group: ""`+oneVersion+`{type: object}`)}, ""},
		"of a group without dot":  {write{object: schemaWith("v1.widgets.apps", "  group: apps"+oneVersion+`{type: object}`)}, ""},
		"core is not a group":     {write{object: schemaWith("v1.widgets.core", "  group: core"+oneVersion+`{type: object}`)}, `the core group is ""`},
		"other groups need a dot": {write{object: schemaWith("v1.widgets.mine", "  group: mine"+oneVersion+`{type: object}`)}, "at least one dot"},
		"a name without a prefix": {write{object: schemaWith("widgets.example.io", "  group: example.io"+oneVersion+`{type: object}`)}, "must be <prefix>.widgets.example.io"},
		"a prefix of two":         {write{object: schemaWith("v1.2.widgets.example.io", "  group: example.io"+oneVersion+`{type: object}`)}, "must be <prefix>.widgets.example.io"},
		"a name of another":       {write{object: schemaWith("v1.gadgets.example.io", "  group: example.io"+oneVersion+`{type: object}`)}, "must be <prefix>.widgets.example.io"},
		"not structural": {write{object: schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`{type: object, properties: {a: {}}}`)},
			"spec.versions[0].schema.properties[a].type: Required value"},
		"a default of the wrong type": {write{object: schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`{type: object, properties: {a: {type: string, default: 1}}}`)},
			"spec.versions[0].schema.properties[a].default: Invalid value"},
		"a rule that does not compile": {write{object: schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`{type: object, x-kubernetes-validations: [{rule: self.none}]}`)},
			"compilation failed"},
		"not a schema":      {write{object: schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`{type: 1}`)}, "schema v1.widgets.example.io, version v1"},
		"nothing is stored": {write{object: strings.ReplaceAll(good, "storage: true", "storage: false")}, "exactly one version marked as storage"},
		"too many selectable fields": {write{object: schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`
        type: object
        properties: {a: &t {type: string}, b: *t, c: *t, d: *t, e: *t, f: *t, g: *t, h: *t, i: *t}
    selectableFields: [{jsonPath: .a}, {jsonPath: .b}, {jsonPath: .c}, {jsonPath: .d}, {jsonPath: .e}, {jsonPath: .f}, {jsonPath: .g}, {jsonPath: .h}, {jsonPath: .i}]`)},
			"spec.versions[0].selectableFields: Too many"},
		"a protected group": {write{object: schemaWith("v1.widgets.example.k8s.io", "  group: example.k8s.io"+oneVersion+`{type: object}`)}, "api-approved.kubernetes.io"},
		"a protected group that is approved": {write{object: strings.Replace(schemaWith("v1.widgets.example.k8s.io", "  group: example.k8s.io"+oneVersion+`{type: object}`),
			"metadata: {", `metadata: {annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes/kubernetes/pull/1"}, `, 1)}, ""},
		"a built-in resource": {write{object: schemaWith("v1.widgets.builtin.example.io", "  group: builtin.example.io"+oneVersion+`{type: object}`)},
			"spec.names.plural: Forbidden: widgets.builtin.example.io is built in"},
		"a label":       {write{before: good, object: strings.Replace(good, "metadata: {", "metadata: {labels: {a: b}, ", 1)}, ""},
		"another scope": {write{before: good, object: strings.Replace(good, "Cluster", "Namespaced", 1)}, "spec: Forbidden: field is immutable"},
	} {
		t.Run(name, func(t *testing.T) {
			test.version = "v1alpha1"
			wantRefused(t, rules, test.attributes(t, "APIResourceSchema"), test.want)
		})
	}
}

func TestExportsNameWhatTheyExportAndClaim(t *testing.T) {
	rules := exportRules{rules{Config{OfServer: func(r schema.GroupResource) bool { return r.Group == "" }}}}
	for name, test := range map[string]struct {
		write
		want string
	}{
		"resources": {write{object: `spec: {resources: [{name: widgets, group: example.io, schema: v1.widgets.example.io}, {name: things, group: "", schema: v1.things.core}]}`}, ""},
		"another's schema": {write{object: `spec: {resources: [{name: widgets, group: example.io, schema: v1.gadgets.example.io}]}`},
			"spec.resources[0].schema: Invalid value: \"v1.gadgets.example.io\": must end with .widgets.example.io"},
		"schemas":         {write{version: "v1alpha1", object: `spec: {latestResourceSchemas: [v1.widgets.example.io]}`}, ""},
		"no schema":       {write{version: "v1alpha1", object: `spec: {latestResourceSchemas: [v1.a.b, widgets]}`}, "spec.latestResourceSchemas[1]: Invalid value: \"widgets\": must be <prefix>.<resource>.<group>"},
		"two of the same": {write{version: "v1alpha1", object: `spec: {latestResourceSchemas: [v1.widgets.example.io, v2.widgets.example.io]}`}, "there is another schema of widgets.example.io already"},
		"one that the annotation has": {write{version: "v1alpha1", object: `
metadata: {annotations: {apis.v1alpha2.kcp.io/resource-schemas: '[{"name":"widgets","group":"example.io","schema":"v1.widgets.example.io","storage":{"virtual":{}}}]'}}
spec: {latestResourceSchemas: [v2.widgets.example.io]}`}, "spec.resources[1].schema: Invalid value: \"v1.widgets.example.io\": there is another schema"},
		"an annotation that is no list": {write{version: "v1alpha1", object: `metadata: {annotations: {apis.v1alpha2.kcp.io/resource-schemas: '{'}}`}, "must be a JSON list"},
		"built-in claims":               {write{object: `spec: {permissionClaims: [{resource: configmaps, verbs: [get]}]}`}, ""},
		"a claim on nobody's resource":  {write{object: `spec: {permissionClaims: [{group: example.io, resource: widgets, verbs: [get]}]}`}, "spec.permissionClaims[0].identityHash: Required value: widgets.example.io is not built in"},
		"the same in v1alpha1":          {write{version: "v1alpha1", object: `spec: {permissionClaims: [{group: example.io, resource: widgets, all: true}]}`}, "identityHash: Required value"},
		"a claim with an identity":      {write{object: `spec: {permissionClaims: [{group: example.io, resource: widgets, verbs: [get], identityHash: abc}]}`}, ""},
		"a default of everything and something": {write{object: `spec: {permissionClaims: [{resource: configmaps, verbs: [get], defaultSelector: {matchAll: true, matchLabels: {a: b}}}]}`},
			"spec.permissionClaims[0].defaultSelector: Forbidden: matchAll excludes"},
		"more about a claim": {write{version: "v1alpha1", object: `
metadata: {annotations: {apis.v1alpha2.kcp.io/permission-claims: '[{"resource":"secrets","verbs":["get"]}]'}}
spec: {permissionClaims: [{resource: secrets, all: true}]}`}, ""},
		"more about a claim that is not there": {write{version: "v1alpha1", object: `
metadata: {annotations: {apis.v1alpha2.kcp.io/permission-claims: '[{"resource":"secrets","verbs":["get"]}]'}}
spec: {permissionClaims: [{resource: configmaps, all: true}]}`}, `Invalid value: "secrets": spec.permissionClaims has no claim`},
		"claims that are too long": {write{object: `spec: {permissionClaims: [{resource: configmaps, verbs: [` + strings.Repeat("x", claimsLimit) + `]}]}`}, "spec.permissionClaims: Too long"},
		"more than v1alpha1 can show": {write{object: `
metadata: {annotations: {mine: ` + strings.Repeat("x", 220<<10) + `}}
spec: {permissionClaims: [{resource: configmaps, verbs: [` + strings.Repeat("x", claimsLimit-1024) + `]}]}`}, "metadata.annotations: Too long"},
		"status": {write{subresource: "status", object: `spec: {resources: [{name: widgets, group: example.io, schema: wrong}]}`}, ""},
	} {
		t.Run(name, func(t *testing.T) { wantRefused(t, rules, test.attributes(t, "APIExport"), test.want) })
	}
}

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
		"everything":                {write{object: bindingWith("{resource: secrets, verbs: [get], state: Accepted, selector: {matchAll: true}}")}, ""},
		"labels":                    {write{object: bindingWith("{resource: secrets, verbs: [get], state: Accepted, selector: {matchLabels: {a: b}}}")}, ""},
		"nothing":                   {write{object: bindingWith("{resource: secrets, verbs: [get], state: Accepted, selector: {}}")}, "spec.permissionClaims[0].selector: Required value"},
		"everything and something":  {write{object: bindingWith("{resource: secrets, verbs: [get], state: Accepted, selector: {matchAll: true, matchLabels: {a: b}}}")}, "matchAll excludes"},
		"labels that nothing has":   {write{object: bindingWith(`{resource: secrets, verbs: [get], state: Accepted, selector: {matchExpressions: [{key: a, operator: Like}]}}`)}, "not a valid label selector operator"},
		"long claims":               {write{object: bindingWith("{resource: secrets, verbs: [" + strings.Repeat("x", claimsLimit) + "], state: Accepted, selector: {matchAll: true}}")}, "spec.permissionClaims: Too long"},
		"long annotations":          {write{object: "metadata: {annotations: {mine: " + strings.Repeat("x", annotationsLimit) + "}}"}, "metadata.annotations: Too long"},
		"all, in v1alpha1":          {write{version: "v1alpha1", object: bindingWith("{resource: secrets, all: true, state: Accepted}")}, ""},
		"names, in v1alpha1":        {write{version: "v1alpha1", object: bindingWith("{resource: secrets, resourceSelector: [{name: a}], state: Accepted}")}, ""},
		"twice the same":            {write{version: "v1alpha1", object: bindingWith("{resource: secrets, all: true, state: Accepted}, {resource: secrets, all: true, state: Rejected}")}, "spec.permissionClaims[1]: Duplicate value"},
		"labels, in v1alpha1":       {write{version: "v1alpha1", object: labelled, before: labelled}, ""},
		"labels that were lost":     {write{version: "v1alpha1", object: bindingWith("{resource: secrets, all: true, state: Accepted}"), before: labelled}, "v1alpha1 cannot change the selector"},
		"labels of another claim":   {write{version: "v1alpha1", object: strings.Replace(labelled, "{resource: secrets, state", "{resource: configmaps, all: true, state", 1)}, "has no claim"},
		"becomes bound":             {write{subresource: "status", object: "{status: {phase: Bound}}", before: "{status: {phase: Binding}}"}, ""},
		"is nothing any more":       {write{subresource: "status", object: "{status: {}}", before: "{status: {phase: Bound}}"}, "the binding is Bound already"},
		"the same through v1alpha1": {write{version: "v1alpha1", subresource: "status", object: "{status: {}}", before: "{status: {phase: Binding}}"}, "the binding is Binding already"},
	} {
		t.Run(name, func(t *testing.T) { wantRefused(t, bindingRules{}, test.attributes(t, "APIBinding"), test.want) })
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
