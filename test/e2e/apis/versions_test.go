package apis

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var (
	oldExports  = apisv1alpha1.SchemeGroupVersion.WithResource("apiexports")
	newExports  = apisv1alpha2.SchemeGroupVersion.WithResource("apiexports")
	oldBindings = apisv1alpha1.SchemeGroupVersion.WithResource("apibindings")
	newBindings = apisv1alpha2.SchemeGroupVersion.WithResource("apibindings")
)

const oldExport = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIExport
metadata: {name: demo}
spec:
  latestResourceSchemas: [v1.widgets.example.io]
  permissionClaims:
  - {resource: configmaps, all: true}
  - {resource: secrets, resourceSelector: [{name: token}]}
`

const newExport = `
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: demo}
spec:
  resources: [{name: widgets, group: example.io, schema: v1.widgets.example.io}]
  permissionClaims:
  - {resource: configmaps, verbs: [get, list]}
`

// wantSpec compares the spec, except for the identity, which the server sets.
func wantSpec(t *testing.T, obj *unstructured.Unstructured, version, want string) {
	t.Helper()
	unstructured.RemoveNestedField(obj.Object, "spec", "identity")
	if got := fmt.Sprint(obj.Object["spec"]); got != want || obj.GetAPIVersion() != version {
		t.Errorf("%s %s has spec\n%s, want in %s\n%s", obj.GetAPIVersion(), obj.GetName(), got, version, want)
	}
}

// waitFor reads events until an object contains a text. All objects must have the version.
func waitFor(t *testing.T, w watch.Interface, version, text string) {
	t.Helper()
	for event := range w.ResultChan() {
		obj, ok := event.Object.(*unstructured.Unstructured)
		if !ok || obj.GetAPIVersion() != version {
			t.Fatalf("the watch of %s got %s %v", version, event.Type, event.Object)
		}
		encoded, err := obj.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ReplaceAll(string(encoded), `\"`, `"`), text) {
			return
		}
	}
	t.Fatalf("the watch of %s ended without %s", version, text)
}

func TestExportIsEquivalentInBothVersions(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	client := cluster.Dynamic(t, kcptest.Masters)
	watches := map[string]watch.Interface{}
	for _, resource := range []schema.GroupVersionResource{oldExports, newExports} {
		w, err := client.Resource(resource).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches[resource.GroupVersion().String()] = w
	}
	if _, err := client.Resource(oldExports).Create(ctx, kcptest.Parse(t, oldExport), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for version, w := range watches {
		waitFor(t, w, version, "token")
	}
	created, err := client.Resource(newExports).Get(ctx, "demo", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantSpec(t, created, "apis.kcp.io/v1alpha2", "map[permissionClaims:[map[group: identityHash: resource:configmaps verbs:[*]] "+
		"map[group: identityHash: resource:secrets verbs:[*]]] "+
		"resources:[map[group:example.io name:widgets schema:v1.widgets.example.io storage:map[crd:map[]]]]]")

	patch := `[{"op": "replace", "path": "/spec/permissionClaims/0/verbs", "value": ["get"]}]`
	if _, err := client.Resource(newExports).Patch(ctx, "demo", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for version, w := range watches {
		waitFor(t, w, version, `"get"`)
	}
	patch = `{"spec": {"latestResourceSchemas": ["v2.widgets.example.io"]}}`
	if _, err := client.Resource(oldExports).Patch(ctx, "demo", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := client.Resource(oldExports).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantSpec(t, &list.Items[0], "apis.kcp.io/v1alpha1", "map[latestResourceSchemas:[v2.widgets.example.io] "+
		"permissionClaims:[map[all:true group: resource:configmaps] map[group: resource:secrets resourceSelector:[map[name:token]]]]]")
	list, err = client.Resource(newExports).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantSpec(t, &list.Items[0], "apis.kcp.io/v1alpha2", "map[permissionClaims:[map[group: identityHash: resource:configmaps verbs:[get]] "+
		"map[group: identityHash: resource:secrets verbs:[*]]] "+
		"resources:[map[group:example.io name:widgets schema:v2.widgets.example.io storage:map[crd:map[]]]]]")

	// An update in the old version keeps content that this version cannot express.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		old, err := client.Resource(oldExports).Get(ctx, "demo", metav1.GetOptions{})
		if err != nil {
			return err
		}
		old.SetLabels(map[string]string{"touched": "yes"})
		_, err = client.Resource(oldExports).Update(ctx, old, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	updated, err := client.Resource(newExports).Get(ctx, "demo", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantSpec(t, updated, "apis.kcp.io/v1alpha2", fmt.Sprint(list.Items[0].Object["spec"]))
}

func TestServerSideApplyTracksFieldOwnersInBothVersions(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Apply(t, newExport, "--server-side", "--field-manager=provider")
	const other = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIExport
metadata: {name: demo}
spec: {permissionClaims: [{resource: secrets, all: true}]}
`
	cluster.Apply(t, other, "--server-side", "--field-manager=other")
	claims := func() string {
		return cluster.Kubectl(t, "get", "apiexport", "demo", "--output=jsonpath={range .spec.permissionClaims[*]}{.resource}:{.verbs} {end}")
	}
	if got := claims(); got != `configmaps:["get","list"] secrets:["*"] ` {
		t.Errorf("after both applied: got %s", got)
	}
	refusal := cluster.Command(t, "kubectl", kcptest.Masters).Input(strings.ReplaceAll(newExport, "v1.widgets", "v2.widgets")).
		Fail(t, "apply", "-f", "-", "--server-side", "--field-manager=third")
	if !strings.Contains(refusal, `conflict with "provider"`) {
		t.Errorf("the conflict does not name the owner of the schema:\n%s", refusal)
	}
	const nothing = "apiVersion: apis.kcp.io/v1alpha2\nkind: APIExport\nmetadata: {name: demo}\n"
	cluster.Apply(t, nothing, "--server-side", "--field-manager=provider")
	if got := claims(); got != `secrets:["*"] ` {
		t.Errorf("after its owner applied an empty object, the claims are %s", got)
	}
	cluster.Apply(t, strings.ReplaceAll(other, "all: true", "resourceSelector: [{name: token}]"), "--server-side", "--field-manager=other", "--force-conflicts")
	if out := cluster.Kubectl(t, "get", "apiexports.v1alpha1.apis.kcp.io", "demo", "--output=jsonpath={.spec.permissionClaims[0].resourceSelector}"); !strings.Contains(out, "token") {
		t.Errorf("the applied name is missing in %s", out)
	}
}

func TestBindingIsEquivalentInBothVersions(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	client := cluster.Dynamic(t, kcptest.Masters)
	cluster.Apply(t, newExport)
	created, err := client.Resource(newBindings).Create(ctx, kcptest.Parse(t, `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: demo}
spec:
  reference: {export: {name: demo}}
  permissionClaims:
  - {resource: configmaps, verbs: [get], selector: {matchLabels: {app: x}}, state: Accepted}
`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old, err := client.Resource(oldBindings).Get(ctx, "demo", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantSpec(t, old, "apis.kcp.io/v1alpha1", "map[permissionClaims:[map[group: resource:configmaps state:Accepted]] reference:map[export:map[name:demo]]]")
	patch := `{"metadata": {"labels": {"touched": "yes"}}}`
	if _, err := client.Resource(oldBindings).Patch(ctx, "demo", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	same, err := client.Resource(newBindings).Get(ctx, "demo", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantSpec(t, same, "apis.kcp.io/v1alpha2", fmt.Sprint(created.Object["spec"]))
	out := cluster.Kubectl(t, "get", "apibindings.v1alpha1.apis.kcp.io")
	if !strings.Contains(out, "AGE") || !strings.Contains(out, "READY") {
		t.Errorf("the table has unexpected columns:\n%s", out)
	}
}
