// Package apisharing tests what APIExports, APIBindings and their virtual workspace promise to providers and consumers.
package apisharing

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var server *kcptest.Server

func TestMain(m *testing.M) {
	kcptest.MainOnOneShard(m, &server)
}

var (
	schemas   = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiresourceschemas"}
	endpoints = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha1", Resource: "apiexportendpointslices"}
	widgets   = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
)

// widgetSchema returns an APIResourceSchema of widgets with a maximum size.
func widgetSchema(prefix string, largest int) string {
	return fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: %s.widgets.example.org}
spec:
  group: example.org
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wdg]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      type: object
      properties:
        spec:
          type: object
          properties:
            size: {type: integer, description: How large it is., minimum: 1, maximum: %d}
        status:
          type: object
          properties:
            ready: {type: boolean}
    subresources: {status: {}}
`, prefix, largest)
}

// export returns an APIExport of a schema of widgets.
func export(prefix string) string {
	return fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: widgets}
spec:
  resources:
  - {group: example.org, name: widgets, schema: %s.widgets.example.org, storage: {crd: {}}}
`, prefix)
}

// provider creates a logical cluster that exports widgets.
func provider(t *testing.T) *kcptest.Cluster {
	t.Helper()
	return exporting(t, server.Cluster(t))
}

// exporting creates an export of widgets in a cluster.
func exporting(t *testing.T, c *kcptest.Cluster) *kcptest.Cluster {
	t.Helper()
	c.Apply(t, widgetSchema("v1", 100)+"---"+export("v1"))
	waitForIdentity(t, c, "widgets")
	return c
}

// child creates a workspace, and returns its logical cluster.
func child(t *testing.T, parent *kcptest.Cluster, name string) *kcptest.Cluster {
	t.Helper()
	parent.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(name, "", ""))
	return server.Named(parent.GetWorkspace(t, name).Spec.Cluster)
}

func waitForIdentity(t *testing.T, provider *kcptest.Cluster, export string) {
	t.Helper()
	kcptest.WaitForStatus(t, provider.Objects(t, kcptest.APIExports), export, "", "identityHash")
}

func identityOf(t *testing.T, ctx context.Context, provider *kcptest.Cluster) string {
	t.Helper()
	return identity(t, ctx, provider, "widgets")
}

func identity(t *testing.T, ctx context.Context, provider *kcptest.Cluster, export string) string {
	t.Helper()
	hash, err := kcptest.StatusField(ctx, provider.Objects(t, kcptest.APIExports), export, "identityHash")
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// binding returns a binding to the export widgets of a provider.
func binding(provider *kcptest.Cluster) *unstructured.Unstructured {
	return kcptest.BindingTo(provider, "widgets")
}

// bind binds the export in a cluster, and waits until it is bound.
func bind(t *testing.T, consumer, provider *kcptest.Cluster) {
	t.Helper()
	consumer.Bind(t, provider, "widgets")
}

func waitForPhase(t *testing.T, consumer *kcptest.Cluster, want string) {
	t.Helper()
	waitForPhaseOf(t, consumer, "widgets", want)
}

func waitForPhaseOf(t *testing.T, consumer *kcptest.Cluster, binding, want string) {
	t.Helper()
	kcptest.WaitForStatus(t, consumer.Objects(t, kcptest.APIBindings), binding, want, "phase")
}

func widget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{"size": size},
	}}
}

// create creates a widget in a consumer.
func create(t *testing.T, consumer *kcptest.Cluster, name string) *unstructured.Unstructured {
	t.Helper()
	made, err := consumer.Objects(t, widgets).Namespace("default").Create(kcptest.Context(t), widget(name, 1), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// view returns a client for the virtual workspace of a provider, for the logical cluster with that name, or for all.
func view(t *testing.T, user kcptest.User, provider *kcptest.Cluster, cluster string) dynamic.Interface {
	t.Helper()
	return viewOf(t, user, provider, "widgets", cluster)
}

// viewOf returns a client for the virtual workspace of an export.
func viewOf(t *testing.T, user kcptest.User, provider *kcptest.Cluster, export, cluster string) dynamic.Interface {
	t.Helper()
	return server.DynamicAt(t, user, pathOf(provider, export, cluster))
}

func pathOf(provider *kcptest.Cluster, export, cluster string) string {
	return "/services/apiexport/" + provider.Name + "/" + export + "/clusters/" + cluster
}
