package workspaces

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/client/workspaces"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// step is a controller as the provider of a WorkspaceType would write it, with controller-runtime. It does its work in every workspace of
// the type, and then removes its initializer or terminator.
type step struct {
	client.Client
	name string
	take func(context.Context, *step, *corev1alpha1.LogicalCluster) error
}

// Reconcile implements reconcile.Reconciler.
func (s *step) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	lc := &corev1alpha1.LogicalCluster{}
	if err := s.Get(ctx, request.NamespacedName, lc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, s.take(ctx, s, lc)
}

// run starts a controller for all workspaces that wait for it, as Victor. The controller stops when the test ends.
func run(t *testing.T, org *kcptest.Cluster, endpoints workspaces.Endpoints, take func(context.Context, *step, *corev1alpha1.LogicalCluster) error) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubescheme.AddToScheme, corev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- workspaces.Follow(ctx, org.Config(kcptest.Victor), endpoints, ctrl.Options{Scheme: scheme}, func(manager ctrl.Manager) error {
			return builder.TypedControllerManagedBy[workspaces.Request](manager).Named("step").
				Watches(&corev1alpha1.LogicalCluster{}, workspaces.Lift(&handler.EnqueueRequestForObject{})).
				Complete(workspaces.Each(&step{manager.GetClient(), workspaces.StepOf(manager), take}))
		})
	}()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestControllersOfTypeRunOnControllerRuntime(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	rules := []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"create", "get", "delete"}}}
	stepped(t, org, "kept", "initializing", map[string]any{
		"initializer": true, "initializerPermissions": rules, "terminator": true, "terminatorPermissions": rules,
	})
	for name, verbs := range map[string]string{"terminate": "terminate", "follow": "get,list,watch"} {
		org.Kubectl(t, "create", "clusterrole", name, "--verb="+verbs, "--resource=workspacetypes.tenancy.kcp.io", "--resource-name=kept")
		org.Kubectl(t, "create", "clusterrolebinding", name, "--clusterrole="+name, "--user="+kcptest.Victor.Name)
	}

	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "note"}}
	run(t, org, workspaces.Initializing("kept"), func(ctx context.Context, s *step, lc *corev1alpha1.LogicalCluster) error {
		if err := s.Create(ctx, note.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		lc.Status.Initializers = slices.DeleteFunc(lc.Status.Initializers, func(i corev1alpha1.LogicalClusterInitializer) bool { return string(i) == s.name })
		return s.Status().Update(ctx, lc)
	})
	cleaned := make(chan string, 100)
	run(t, org, workspaces.Terminating("kept"), func(ctx context.Context, s *step, lc *corev1alpha1.LogicalCluster) error {
		if err := client.IgnoreNotFound(s.Delete(ctx, note.DeepCopy())); err != nil {
			return err
		}
		lc.Status.Terminators = slices.DeleteFunc(lc.Status.Terminators, func(i corev1alpha1.LogicalClusterTerminator) bool { return string(i) == s.name })
		if err := s.Status().Update(ctx, lc); err != nil {
			return err
		}
		cleaned <- workspaces.ClusterOf(lc)
		return nil
	})

	const count = 5
	names := map[string]bool{}
	for i := range count {
		name := fmt.Sprintf("w-%d", i)
		inside := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace(name, "", "kept"))
		names[org.GetWorkspace(t, name).Spec.Cluster] = true
		if _, err := inside.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, "note", metav1.GetOptions{}); err != nil {
			t.Errorf("workspace %s was not initialized: %v", name, err)
		}
	}
	client := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	for i := range count {
		if err := client.Delete(ctx, fmt.Sprintf("w-%d", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	kcptest.Eventually(t, "the workspaces are deleted", func(ctx context.Context) error {
		left, err := client.List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d workspaces remain", len(left.Items))
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
