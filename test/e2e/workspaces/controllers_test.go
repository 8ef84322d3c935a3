package workspaces

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// inCluster is what the controllers below reconcile: the one LogicalCluster of a cluster.
type inCluster struct{ Cluster string }

// step is a controller as the provider of a workspace type would write it, on controller-runtime: it takes its step in
// every workspace of the type, and then removes its entry.
type step struct {
	config *rest.Config // of its virtual workspace
	scheme *runtime.Scheme
	take   func(context.Context, client.Client, *corev1alpha1.LogicalCluster) error
}

func (s *step) clientFor(cluster string) (client.Client, error) {
	config := rest.CopyConfig(s.config)
	config.Host += "/clusters/" + cluster
	return client.New(config, client.Options{Scheme: s.scheme})
}

// Reconcile implements reconcile.TypedReconciler.
func (s *step) Reconcile(ctx context.Context, request inCluster) (reconcile.Result, error) {
	inside, err := s.clientFor(request.Cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	lc := &corev1alpha1.LogicalCluster{}
	if err := inside.Get(ctx, client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, lc); err != nil {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // the step has been taken
		}
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, s.take(ctx, inside, lc)
}

// run starts the controller on all workspaces that wait for it; it ends with the test.
func (s *step) run(t *testing.T, name string) {
	t.Helper()
	everywhere := rest.CopyConfig(s.config)
	everywhere.Host += "/clusters/*"
	manager, err := ctrl.NewManager(everywhere, ctrl.Options{Scheme: s.scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := controller.NewTyped(name, manager, controller.TypedOptions[inCluster]{Reconciler: s})
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(obj client.Object, queue workqueue.TypedRateLimitingInterface[inCluster]) {
		queue.Add(inCluster{obj.GetAnnotations()["kcp.io/cluster"]})
	}
	events := handler.TypedFuncs[*corev1alpha1.LogicalCluster, inCluster]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1alpha1.LogicalCluster], q workqueue.TypedRateLimitingInterface[inCluster]) {
			enqueue(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1alpha1.LogicalCluster], q workqueue.TypedRateLimitingInterface[inCluster]) {
			enqueue(e.ObjectNew, q)
		},
	}
	if err := c.Watch(source.TypedKind(manager.GetCache(), &corev1alpha1.LogicalCluster{}, events)); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// stepAt returns a controller for the virtual workspace at url, as Victor.
func stepAt(t *testing.T, url string, take func(context.Context, client.Client, *corev1alpha1.LogicalCluster) error) *step {
	t.Helper()
	config := rest.CopyConfig(server.Named("root").Config(kcptest.Victor))
	config.Host = server.URL + url[strings.Index(url, "/services/"):]
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubescheme.AddToScheme, corev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return &step{config: config, scheme: scheme, take: take}
}

func TestControllersOfATypeAreWrittenOnControllerRuntime(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	rules := []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"create", "get", "delete"}}}
	initializing := stepped(t, org, "kept", "initializing", map[string]any{
		"initializer": true, "initializerPermissions": rules, "terminator": true, "terminatorPermissions": rules,
	})
	terminating := strings.Replace(initializing, "initializingworkspaces", "terminatingworkspaces", 1)
	id := initializing[strings.LastIndexByte(initializing, '/')+1:]
	org.Kubectl(t, "create", "clusterrole", "terminate", "--verb=terminate", "--resource=workspacetypes.tenancy.kcp.io", "--resource-name=kept")
	org.Kubectl(t, "create", "clusterrolebinding", "terminate", "--clusterrole=terminate", "--user="+kcptest.Victor.Name)

	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "note"}}
	stepAt(t, initializing, func(ctx context.Context, inside client.Client, lc *corev1alpha1.LogicalCluster) error {
		if err := inside.Create(ctx, note.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		lc.Status.Initializers = slices.DeleteFunc(lc.Status.Initializers, func(i corev1alpha1.LogicalClusterInitializer) bool { return string(i) == id })
		return inside.Status().Update(ctx, lc)
	}).run(t, "initializer-"+kcptest.Suffix())
	cleaned := make(chan string, 100)
	stepAt(t, terminating, func(ctx context.Context, inside client.Client, lc *corev1alpha1.LogicalCluster) error {
		if err := client.IgnoreNotFound(inside.Delete(ctx, note.DeepCopy())); err != nil {
			return err
		}
		lc.Status.Terminators = slices.DeleteFunc(lc.Status.Terminators, func(i corev1alpha1.LogicalClusterTerminator) bool { return string(i) == id })
		if err := inside.Status().Update(ctx, lc); err != nil {
			return err
		}
		cleaned <- lc.Annotations["kcp.io/cluster"]
		return nil
	}).run(t, "terminator-"+kcptest.Suffix())

	const workspaces = 5
	names := map[string]bool{}
	for i := range workspaces {
		name := fmt.Sprintf("w-%d", i)
		inside := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace(name, "", "kept"))
		names[org.GetWorkspace(t, name).Spec.Cluster] = true
		if _, err := inside.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, "note", metav1.GetOptions{}); err != nil {
			t.Errorf("%s was not initialized: %v", name, err)
		}
	}
	client := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	for i := range workspaces {
		if err := client.Delete(ctx, fmt.Sprintf("w-%d", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	kcptest.Eventually(t, "the workspaces are gone", func(ctx context.Context) error {
		left, err := client.List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are left", len(left.Items))
		}
		return err
	})
	for len(cleaned) > 0 {
		delete(names, <-cleaned)
	}
	if len(names) > 0 {
		t.Errorf("the terminator did not see %v", names)
	}
}
