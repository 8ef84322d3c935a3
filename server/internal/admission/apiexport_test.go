package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestExportsNameWhatTheyExportAndClaim(t *testing.T) {
	rules := exportRules{rules{Config{OfServer: func(r schema.GroupResource) bool { return r.Group == "" }}}}
	for name, test := range map[string]struct {
		write
		want string
	}{
		"resources with their schemas are admitted": {write{object: `spec: {resources: [{name: widgets, group: example.io, schema: v1.widgets.example.io}, {name: things, group: "", schema: v1.things.core}]}`}, ""},
		"the schema of another resource is refused": {write{object: `spec: {resources: [{name: widgets, group: example.io, schema: v1.gadgets.example.io}]}`},
			"spec.resources[0].schema: Invalid value: \"v1.gadgets.example.io\": must end with .widgets.example.io"},
		"in v1alpha1, the name of a schema is admitted":               {write{version: "v1alpha1", object: `spec: {latestResourceSchemas: [v1.widgets.example.io]}`}, ""},
		"in v1alpha1, a name that is not that of a schema is refused": {write{version: "v1alpha1", object: `spec: {latestResourceSchemas: [v1.a.b, widgets]}`}, "spec.latestResourceSchemas[1]: Invalid value: \"widgets\": must be <prefix>.<resource>.<group>"},
		"two schemas of a resource are refused":                       {write{version: "v1alpha1", object: `spec: {latestResourceSchemas: [v1.widgets.example.io, v2.widgets.example.io]}`}, "another schema of widgets.example.io is already in the list"},
		"in v1alpha1, a schema of a resource in the annotation is refused": {write{version: "v1alpha1", object: `
metadata: {annotations: {apis.v1alpha2.kcp.io/resource-schemas: '[{"name":"widgets","group":"example.io","schema":"v1.widgets.example.io","storage":{"virtual":{}}}]'}}
spec: {latestResourceSchemas: [v2.widgets.example.io]}`}, "spec.resources[1].schema: Invalid value: \"v1.widgets.example.io\": another schema of widgets.example.io is already in the list"},
		"an annotation that is not a list is refused":                             {write{version: "v1alpha1", object: `metadata: {annotations: {apis.v1alpha2.kcp.io/resource-schemas: '{'}}`}, "must be a JSON list"},
		"a claim on a built-in resource is admitted":                              {write{object: `spec: {permissionClaims: [{resource: configmaps, verbs: [get]}]}`}, ""},
		"a claim on another resource without an identity is refused":              {write{object: `spec: {permissionClaims: [{group: example.io, resource: widgets, verbs: [get]}]}`}, "spec.permissionClaims[0].identityHash: Required value: widgets.example.io is not built in"},
		"in v1alpha1, a claim on another resource without an identity is refused": {write{version: "v1alpha1", object: `spec: {permissionClaims: [{group: example.io, resource: widgets, all: true}]}`}, "identityHash: Required value"},
		"a claim with an identity is admitted":                                    {write{object: `spec: {permissionClaims: [{group: example.io, resource: widgets, verbs: [get], identityHash: abc}]}`}, ""},
		"a default selector with matchAll and labels is refused": {write{object: `spec: {permissionClaims: [{resource: configmaps, verbs: [get], defaultSelector: {matchAll: true, matchLabels: {a: b}}}]}`},
			"spec.permissionClaims[0].defaultSelector: Forbidden: matchAll excludes"},
		"in v1alpha1, an annotation with more fields of a claim is admitted": {write{version: "v1alpha1", object: `
metadata: {annotations: {apis.v1alpha2.kcp.io/permission-claims: '[{"resource":"secrets","verbs":["get"]}]'}}
spec: {permissionClaims: [{resource: secrets, all: true}]}`}, ""},
		"in v1alpha1, an annotation with another claim is refused": {write{version: "v1alpha1", object: `
metadata: {annotations: {apis.v1alpha2.kcp.io/permission-claims: '[{"resource":"secrets","verbs":["get"]}]'}}
spec: {permissionClaims: [{resource: configmaps, all: true}]}`}, `Invalid value: "secrets": spec.permissionClaims has no claim`},
		"claims beyond the limit are refused": {write{object: `spec: {permissionClaims: [{resource: configmaps, verbs: [` + strings.Repeat("x", claimsLimit) + `]}]}`}, "spec.permissionClaims: Too long"},
		"annotations that do not fit in v1alpha1 are refused": {write{object: `
metadata: {annotations: {mine: ` + strings.Repeat("x", 220<<10) + `}}
spec: {permissionClaims: [{resource: configmaps, verbs: [` + strings.Repeat("x", claimsLimit-1024) + `]}]}`}, "metadata.annotations: Too long"},
		"the status is not validated": {write{subresource: "status", object: `spec: {resources: [{name: widgets, group: example.io, schema: wrong}]}`}, ""},
	} {
		t.Run(name, func(t *testing.T) { wantInvalid(t, rules, test.attributes(t, "APIExport"), test.want) })
	}
}

func TestTheKeyOfAnIdentityRequiresAccessToItsSecret(t *testing.T) {
	const export = `spec: {identity: {secretRef: {namespace: keys, name: mine}}}`
	const refused = "403 Forbidden: spec.identity.secretRef: missing verb='get' permission on secret keys/mine"
	for name, test := range map[string]struct {
		write
		granted grants
		want    string
	}{
		"a Secret that the user may get is admitted":     {write{object: export}, grants{"ada get keys/secrets mine in root"}, ""},
		"a Secret that the user may not get is refused":  {write{object: export}, grants{"ada get keys/secrets other in root"}, refused},
		"a Secret that is added by an update is refused": {write{object: export, before: `spec: {}`}, nil, refused},
		"a Secret that changes is refused":               {write{object: export, before: `spec: {identity: {secretRef: {namespace: keys, name: other}}}`}, nil, refused},
		"an unchanged Secret is admitted":                {write{object: export, before: export}, nil, ""},
		"a privileged user needs no permission":          {write{object: export, who: privileged}, nil, ""},
		"an export without a Secret is admitted":         {write{object: `spec: {identity: {}}`}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := test.attributes(t, "APIExport")
			wantOutcome(t, a, exportRules{rules{newConfig(t, test.granted)}}.Validate(in(t, "root"), a, nil), test.want)
		})
	}
}
