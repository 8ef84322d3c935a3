package kcptest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/client/kcptest"
	"github.com/kcplane/kcp/client/workspaces"
)

var server *kcptest.Server

func TestMain(m *testing.M) { kcptest.Main(m, &server, kcptest.Options{}) }

// export is the API of a provider. Your tests read the manifests that you release instead.
const export = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      type: object
      properties:
        spec: {type: object, properties: {size: {type: integer, minimum: 1}}}
        status: {type: object, properties: {phase: {type: string}}}
---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: widgets}
spec:
  resources:
  - {group: example.com, name: widgets, schema: v1.widgets.example.com}
`

const binding = `
apiVersion: apis.kcp.io/v1alpha2
kind: APIBinding
metadata: {name: widgets}
spec: {reference: {export: {path: %q, name: widgets}}}
`

const widget = `
apiVersion: example.com/v1
kind: Widget
metadata: {namespace: default, name: main}
spec: {size: %d}
`

// apply creates the objects of manifests in a workspace.
func apply(t *testing.T, in *kcptest.Workspace, manifests string) error {
	t.Helper()
	c := clientOf(t, in.Config)
	for manifest := range strings.SplitSeq(manifests, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(manifest), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), object); err != nil {
			return err
		}
	}
	return nil
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get returns an object whose kind has no Go type in this test.
func get(t *testing.T, in *kcptest.Workspace, apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	if err := clientOf(t, in.Config).Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}
	return object
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// consumer returns a workspace with a binding to the API of a provider.
func consumer(t *testing.T, provider *kcptest.Workspace) *kcptest.Workspace {
	t.Helper()
	workspace := server.Workspace(t)
	if err := apply(t, workspace, fmt.Sprintf(binding, provider.Path)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API is bound", func() bool {
		phase, _, _ := unstructured.NestedString(get(t, workspace, "apis.kcp.io/v1alpha2", "APIBinding", "", "widgets").Object, "status", "phase")
		return phase == "Bound"
	})
	return workspace
}

// provide returns a workspace that exports the API.
func provide(t *testing.T) *kcptest.Workspace {
	t.Helper()
	provider := server.Workspace(t)
	if err := apply(t, provider, export); err != nil {
		t.Fatal(err)
	}
	return provider
}

func TestWidgetsMustHavePositiveSize(t *testing.T) {
	t.Parallel()
	workspace := consumer(t, provide(t))
	if err := apply(t, workspace, fmt.Sprintf(widget, 0)); !apierrors.IsInvalid(err) {
		t.Errorf("size 0: got error %v, want Invalid", err)
	}
	if err := apply(t, workspace, fmt.Sprintf(widget, 1)); err != nil {
		t.Errorf("size 1: %v", err)
	}
}

func TestControllerServesEveryConsumer(t *testing.T) {
	t.Parallel()
	provider := provide(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, provider.Config) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("running the controller: %v", err)
		}
	}()
	for range 2 {
		workspace := consumer(t, provider)
		if err := apply(t, workspace, fmt.Sprintf(widget, 1)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the widget is ready", func() bool {
			phase, _, _ := unstructured.NestedString(get(t, workspace, "example.com/v1", "Widget", "default", "main").Object, "status", "phase")
			return phase == "Ready in "+workspace.Cluster
		})
	}
}

// run runs the controller under test. Your tests call the function that your program calls instead.
func run(ctx context.Context, provider *rest.Config) error {
	options := ctrl.Options{Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}}}
	return workspaces.Follow(ctx, provider, workspaces.Export("widgets"), options, func(manager ctrl.Manager) error {
		watched := &unstructured.Unstructured{}
		watched.SetAPIVersion("example.com/v1")
		watched.SetKind("Widget")
		return builder.TypedControllerManagedBy[workspaces.Request](manager).Named("widgets").
			Watches(watched, workspaces.Lift(&handler.EnqueueRequestForObject{})).
			Complete(workspaces.Each(&reconciler{manager.GetClient()}))
	})
}

type reconciler struct{ client.Client }

// Reconcile sets the phase of a widget.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("example.com/v1")
	object.SetKind("Widget")
	if err := r.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := object.DeepCopy()
	object.Object["status"] = map[string]any{"phase": "Ready in " + workspaces.ClusterOf(object)}
	return ctrl.Result{}, client.IgnoreNotFound(r.Status().Patch(ctx, object, client.MergeFrom(before)))
}
