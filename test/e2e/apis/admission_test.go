package apis

import (
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const widgetSchema = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.widgets.example.io}
spec:
  group: example.io
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {type: object, properties: {spec: {type: object}}}
`

func TestInvalidObjectsAreRefusedWithReason(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Apply(t, widgetSchema)
	binding := strings.ReplaceAll(`
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: demo}
spec:
  reference: {export: {name: demo}}
  permissionClaims: [{resource: configmaps, verbs: [get], state: Accepted, selector: SELECTOR}]
`, "SELECTOR", "{matchLabels: {app: x}}")
	cluster.Apply(t, newExport)
	cluster.Apply(t, binding)
	for name, test := range map[string]struct{ object, want string }{
		"a changed schema":                      {strings.Replace(widgetSchema, "spec: {type: object}", "spec: {type: string}", 1), "field is immutable"},
		"a property without a type":             {strings.NewReplacer("v1.widgets", "v2.widgets", "{spec: {type: object}}", "{spec: {}}").Replace(widgetSchema), "spec.versions[0].schema.properties[spec].type"},
		"a schema of another resource":          {strings.Replace(newExport, "v1.widgets", "v1.gadgets", 1), "must end with .widgets.example.io"},
		"a claim without an identity hash":      {strings.Replace(newExport, "{resource: configmaps", "{group: example.io, resource: gadgets", 1), "gadgets.example.io is not built in"},
		"a claim on bindings":                   {strings.Replace(newExport, "{resource: configmaps", "{group: apis.kcp.io, resource: apibindings", 1), ""},
		"a claim with matchAll and matchLabels": {strings.NewReplacer("{matchLabels", "{matchAll: true, matchLabels", "name: demo}\nspec", "name: other}\nspec").Replace(binding), "matchAll excludes matchLabels"},
		"a changed selector":                    {strings.Replace(binding, "app: x", "app: other", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			command := cluster.Command(t, "kubectl", kcptest.Masters).Input(test.object)
			if test.want == "" {
				cluster.Apply(t, test.object, "--dry-run=server")
				return
			}
			if refusal := command.Fail(t, "apply", "-f", "-"); !strings.Contains(refusal, test.want) {
				t.Errorf("the error does not contain %q:\n%s", test.want, refusal)
			}
		})
	}
	refusal := cluster.Command(t, "kubectl", kcptest.Masters).Fail(t, "annotate", "apiexports.v1alpha1.apis.kcp.io", "demo", "--overwrite",
		`apis.v1alpha2.kcp.io/permission-claims=[{"resource":"secrets","verbs":["get"]}]`)
	if !strings.Contains(refusal, "spec.permissionClaims has no claim") {
		t.Errorf("changing a claim that does not exist: got\n%s", refusal)
	}
}
