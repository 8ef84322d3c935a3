package admission

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
		"a valid schema is admitted":              {write{object: good}, ""},
		"a schema of the core group is admitted":  {write{object: schemaWith("v1.widgets.core", `  group: ""`+oneVersion+`{type: object}`)}, ""},
		"a schema of the group apps is admitted":  {write{object: schemaWith("v1.widgets.apps", "  group: apps"+oneVersion+`{type: object}`)}, ""},
		"the group core is refused":               {write{object: schemaWith("v1.widgets.core", "  group: core"+oneVersion+`{type: object}`)}, `the core group is ""`},
		"another group without a dot is refused":  {write{object: schemaWith("v1.widgets.mine", "  group: mine"+oneVersion+`{type: object}`)}, "at least one dot"},
		"a name without a prefix is refused":      {write{object: schemaWith("widgets.example.io", "  group: example.io"+oneVersion+`{type: object}`)}, "must be <prefix>.widgets.example.io"},
		"a prefix with a dot is refused":          {write{object: schemaWith("v1.2.widgets.example.io", "  group: example.io"+oneVersion+`{type: object}`)}, "must be <prefix>.widgets.example.io"},
		"the name of another resource is refused": {write{object: schemaWith("v1.gadgets.example.io", "  group: example.io"+oneVersion+`{type: object}`)}, "must be <prefix>.widgets.example.io"},
		"a schema that is not structural is refused": {write{object: schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`{type: object, properties: {a: {}}}`)},
			"spec.versions[0].schema.properties[a].type: Required value"},
		"a default of the wrong type is refused": {write{object: schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`{type: object, properties: {a: {type: string, default: 1}}}`)},
			"spec.versions[0].schema.properties[a].default: Invalid value"},
		"a rule that does not compile is refused": {write{object: schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`{type: object, x-kubernetes-validations: [{rule: self.none}]}`)},
			"compilation failed"},
		"a schema that cannot be decoded is refused":    {write{object: schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`{type: 1}`)}, "schema v1.widgets.example.io, version v1"},
		"a schema without a storage version is refused": {write{object: strings.ReplaceAll(good, "storage: true", "storage: false")}, "exactly one version marked as storage"},
		"too many selectable fields are refused": {write{object: schemaWith("v1.widgets.example.io", "  group: example.io"+oneVersion+`
        type: object
        properties: {a: &t {type: string}, b: *t, c: *t, d: *t, e: *t, f: *t, g: *t, h: *t, i: *t}
    selectableFields: [{jsonPath: .a}, {jsonPath: .b}, {jsonPath: .c}, {jsonPath: .d}, {jsonPath: .e}, {jsonPath: .f}, {jsonPath: .g}, {jsonPath: .h}, {jsonPath: .i}]`)},
			"spec.versions[0].selectableFields: Too many"},
		"a protected group without approval is refused": {write{object: schemaWith("v1.widgets.example.k8s.io", "  group: example.k8s.io"+oneVersion+`{type: object}`)}, "api-approved.kubernetes.io"},
		"a protected group with approval is admitted": {write{object: strings.Replace(schemaWith("v1.widgets.example.k8s.io", "  group: example.k8s.io"+oneVersion+`{type: object}`),
			"metadata: {", `metadata: {annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes/kubernetes/pull/1"}, `, 1)}, ""},
		"a built-in resource is refused": {write{object: schemaWith("v1.widgets.builtin.example.io", "  group: builtin.example.io"+oneVersion+`{type: object}`)},
			"spec.names.plural: Forbidden: widgets.builtin.example.io is built in"},
		"a change of labels is admitted": {write{before: good, object: strings.Replace(good, "metadata: {", "metadata: {labels: {a: b}, ", 1)}, ""},
		"a change of the approval is validated": {write{before: good, object: strings.Replace(good, "metadata: {",
			`metadata: {annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes/kubernetes/pull/1"}, `, 1)}, ""},
		"a removed approval of a protected group is refused": {write{
			before: strings.Replace(schemaWith("v1.widgets.example.k8s.io", "  group: example.k8s.io"+oneVersion+`{type: object}`),
				"metadata: {", `metadata: {annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes/kubernetes/pull/1"}, `, 1),
			object: schemaWith("v1.widgets.example.k8s.io", "  group: example.k8s.io"+oneVersion+`{type: object}`),
		}, "api-approved.kubernetes.io"},
		"the status is not validated":      {write{object: schemaWith("wrong", "  group: wrong"), subresource: "status"}, ""},
		"a change of the scope is refused": {write{before: good, object: strings.Replace(good, "Cluster", "Namespaced", 1)}, "spec: Forbidden: field is immutable"},
	} {
		t.Run(name, func(t *testing.T) {
			test.version = "v1alpha1"
			wantInvalid(t, rules, test.attributes(t, "APIResourceSchema"), test.want)
		})
	}
}
