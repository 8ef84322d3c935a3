package admission

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

func TestWebhooksAndPoliciesCannotChangeWhatTheServerSets(t *testing.T) {
	const given = `
metadata: {labels: {a: b}, annotations: {mine: a, kcp.io/path: "root:team"}}
spec: {cluster: c, URL: "https://kcp.test", type: {name: universal}, initializers: [a]}
status: {phase: Ready}`
	set := func(value any, fields ...string) func(map[string]any) {
		return func(content map[string]any) {
			if err := unstructured.SetNestedField(content, value, fields...); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := func(what string) string {
		return "403 Forbidden: " + what + " is set by the system: mutating webhooks and policies cannot change it"
	}
	for name, test := range map[string]struct {
		group, kind string
		change      func(map[string]any)
		want        string
	}{
		"nothing is changed":                            {"tenancy.kcp.io", "Workspace", func(map[string]any) {}, ""},
		"a label is changed":                            {"tenancy.kcp.io", "Workspace", set("c", "metadata", "labels", "a"), ""},
		"an annotation of a client is changed":          {"tenancy.kcp.io", "Workspace", set("b", "metadata", "annotations", "mine"), ""},
		"an unprotected field is changed":               {"tenancy.kcp.io", "Workspace", set("other", "spec", "type", "name"), ""},
		"the path is changed":                           {"tenancy.kcp.io", "Workspace", set("root", "metadata", "annotations", "kcp.io/path"), refused("annotation kcp.io/path")},
		"the path is removed":                           {"tenancy.kcp.io", "Workspace", func(content map[string]any) { unstructured.RemoveNestedField(content, "metadata", "annotations") }, refused("annotation kcp.io/path")},
		"a limit is added":                              {"core.kcp.io", "LogicalCluster", set("0", "metadata", "annotations", corev1alpha1.MaxTotalObjectsAnnotation), refused("annotation " + corev1alpha1.MaxTotalObjectsAnnotation)},
		"a protected annotation of any kind is changed": {"example.org", "Widget", set("root", "metadata", "annotations", "kcp.io/path"), refused("annotation kcp.io/path")},
		"the cluster of a workspace is changed":         {"tenancy.kcp.io", "Workspace", set("root", "spec", "cluster"), refused("spec.cluster")},
		"the URL of a workspace is changed":             {"tenancy.kcp.io", "Workspace", set("https://evil.test", "spec", "URL"), refused("spec.URL")},
		"the phase of a workspace is changed":           {"tenancy.kcp.io", "Workspace", set("Initializing", "status", "phase"), refused("status")},
		"the status of a workspace is removed":          {"tenancy.kcp.io", "Workspace", func(content map[string]any) { delete(content, "status") }, refused("status")},
		"the spec of a logical cluster is changed":      {"core.kcp.io", "LogicalCluster", set("b", "spec", "owner"), refused("spec")},
		"the status of a logical cluster is changed":    {"core.kcp.io", "LogicalCluster", set("Deleting", "status", "phase"), refused("status")},
		"the spec of another kind is changed":           {"example.org", "Widget", set("root", "spec", "cluster"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := write{group: test.group, object: given}.attributes(t, test.kind)
			wantOutcome(t, a, withProtection(a, func() error {
				test.change(contentOf(t, a))
				return nil
			}), test.want)
		})
	}

	denied := errors.New("denied by a webhook")
	a := write{object: given}.attributes(t, "APIExport")
	if err := withProtection(a, func() error { set("root", "metadata", "annotations", "kcp.io/path")(contentOf(t, a)); return denied }); err != denied { //nolint:errorlint // it is the same
		t.Errorf("got %v, want the refusal of the webhook", err)
	}
	b := deletion(workspaceResource.WithVersion("v1alpha1"), "Workspace", "x")
	if err := withProtection(b, func() error { return nil }); err != nil {
		t.Errorf("a deletion, without an object, is refused: %v", err)
	}
}
