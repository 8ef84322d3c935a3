package apisharing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// bindingsTo returns the bindings of a cluster to an export, by name.
func bindingsTo(t *testing.T, cluster *kcptest.Cluster, path, export string) map[string]*unstructured.Unstructured {
	t.Helper()
	list, err := cluster.Objects(t, kcptest.APIBindings).List(kcptest.Context(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	for i, b := range list.Items {
		of, _, _ := unstructured.NestedStringMap(b.Object, "spec", "reference", "export")
		if of["path"] == path && of["name"] == export {
			found[b.GetName()] = &list.Items[i]
		}
	}
	return found
}

// identityOfSystem returns the identity of an export of root.
func identityOfSystem(t *testing.T, name string) string {
	t.Helper()
	var hash string
	kcptest.Eventually(t, name+" has an identity", func(ctx context.Context) error {
		e, err := server.Named("root").Dynamic(t, kcptest.Masters).Resource(kcptest.APIExports).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if hash, _, _ = unstructured.NestedString(e.Object, "status", "identityHash"); hash == "" {
			return fmt.Errorf("got status %v", e.Object["status"])
		}
		return nil
	})
	return hash
}

func TestEveryWorkspaceBindsAPIsOfTheServer(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	identityOfSystem(t, "tenancy.kcp.io")
	identityOfSystem(t, "topology.kcp.io")
	parent := server.Cluster(t)
	parent.Apply(t, "apiVersion: tenancy.kcp.io/v1alpha1\nkind: WorkspaceType\nmetadata: {name: bare}\nspec: {}\n")
	for _, typeName := range []string{"universal", "bare"} {
		path := map[string]string{"universal": "root"}[typeName]
		made := parent.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(typeName, path, typeName))
		var written []string
		for _, export := range []string{"tenancy.kcp.io", "topology.kcp.io"} {
			for name, b := range bindingsTo(t, made, "root", export) {
				if phase, _, _ := unstructured.NestedString(b.Object, "status", "phase"); phase != "Bound" || !strings.HasPrefix(name, export+"-") {
					t.Errorf("%s: binding %s has status %v", typeName, name, b.Object["status"])
				}
				written = append(written, b.GetResourceVersion())
			}
		}
		namespaces, err := made.Kube(t, kcptest.Masters).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var expected []string
		for i := range namespaces.Items {
			expected = append(expected, namespaces.Items[i].ResourceVersion)
		}
		slices.Sort(written)
		if slices.Sort(expected); !slices.Equal(written, expected) {
			t.Errorf("%s: the bindings have the revisions %v, and the namespaces, which are written with them at once, have %v", typeName, written, expected)
		}
	}
	kubectl := server.Named(parent.Name+":universal").Command(t, "kubectl", kcptest.Masters).WithPlugins(t)
	if out := strings.Join(strings.Fields(kubectl.Run(t, "kcp", "get", "apis")), " "); !strings.Contains(out, "→ root:tenancy.kcp.io") ||
		!strings.Contains(out, "partitions topology.kcp.io v1alpha1 Partition APIBinding topology.kcp.io-") {
		t.Errorf("got providers\n%s", out)
	}
}

func TestWorkspaceWithoutRequestsStoresNoBinding(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	parent := server.Cluster(t)
	made := parent.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("idle", "root", "universal"))
	// Requests for the bound APIs do not store bindings either.
	if _, err := made.Objects(t, kcptest.Workspaces).List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster := parent.GetWorkspace(t, "idle").Spec.Cluster
	for _, resource := range []schema.GroupVersionResource{kcptest.APIBindings, {Version: "v1", Resource: "namespaces"}} {
		list, err := server.Named("*").Metadata(t, kcptest.Masters).Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].Annotations["kcp.io/cluster"] == cluster {
				t.Errorf("found %s %s", resource.Resource, list.Items[i].Name)
			}
		}
	}
}

func TestSystemBindingsCannotBeDeleted(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	identityOfSystem(t, "tenancy.kcp.io")
	parent := server.Cluster(t)
	made := parent.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("one", "root", "universal"))
	client := made.Objects(t, kcptest.APIBindings)
	for name := range bindingsTo(t, made, "root", "tenancy.kcp.io") {
		err := client.Delete(ctx, name, metav1.DeleteOptions{})
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
		if err != nil && !strings.Contains(err.Error(), "every workspace binds root:tenancy.kcp.io") {
			t.Errorf("got error %v", err)
		}
	}
	err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	if len(bindingsTo(t, made, "root", "tenancy.kcp.io")) != 1 {
		t.Error("the binding is deleted as one of a collection")
	}
	// Another binding to the same export has no effect, and can be deleted.
	kubectl := made.Command(t, "kubectl", kcptest.Masters).WithPlugins(t)
	kubectl.Run(t, "kcp", "bind", "apiexport", "root:tenancy.kcp.io")
	made.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("child", "root", "universal"))
	kubectl.Run(t, "delete", "apibinding", "tenancy.kcp.io")
	if _, err := made.Objects(t, kcptest.Workspaces).Get(ctx, "child", metav1.GetOptions{}); err != nil {
		t.Errorf("the workspace inside: %v", err)
	}
	if len(bindingsTo(t, made, "root", "tenancy.kcp.io")) != 1 {
		t.Errorf("got bindings %v", bindingsTo(t, made, "root", "tenancy.kcp.io"))
	}
	if err := parent.Objects(t, kcptest.Workspaces).Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, parent.Objects(t, kcptest.Workspaces), "one")
}

func TestProviderCanClaimWorkspaces(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	identity := identityOfSystem(t, "tenancy.kcp.io")
	p, consumer, silent := provider(t), server.Cluster(t), server.Cluster(t)
	claim := func(identity string) error {
		patch := fmt.Sprintf(`{"spec":{"permissionClaims":[{"group":"tenancy.kcp.io","resource":"workspaces","verbs":["*"],"identityHash":%q}]}}`, identity)
		_, err := p.Objects(t, kcptest.APIExports).Patch(ctx, "widgets", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	kcptest.WantReason(t, claim(""), metav1.StatusReasonInvalid)
	if err := claim(identity); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*kcptest.Cluster{consumer, silent} {
		bind(t, c, p)
		c.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("before", "root", "universal"))
	}
	server.Named(consumer.Name).Command(t, "kubectl", kcptest.Masters).WithPlugins(t).Run(t, "kcp", "claims", "accept", "apibinding", "widgets")
	sees := func(cluster string, names ...string) {
		t.Helper()
		kcptest.Eventually(t, fmt.Sprintf("the provider sees the workspaces %v", names), func(ctx context.Context) error {
			list, err := view(t, kcptest.Masters, p, cluster).Resource(kcptest.Workspaces).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			var seen []string
			for i := range list.Items {
				seen = append(seen, list.Items[i].GetName())
			}
			if slices.Sort(seen); !slices.Equal(seen, names) {
				return fmt.Errorf("got %v", seen)
			}
			return nil
		})
	}
	sees("*", "before")
	inside := view(t, kcptest.Masters, p, consumer.Name).Resource(kcptest.Workspaces)
	if _, err := inside.Create(ctx, kcptest.Workspace("made", "root", "universal"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sees(consumer.Name, "before", "made")
	kcptest.Eventually(t, "the workspace of the provider is ready", func(context.Context) error {
		if phase := consumer.GetWorkspace(t, "made").Status.Phase; phase != "Ready" {
			return fmt.Errorf("phase is %q", phase)
		}
		return nil
	})
	_, err := view(t, kcptest.Masters, p, silent.Name).Resource(kcptest.Workspaces).List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	// kubectl finds the resource by discovery of the view.
	out := consumer.Command(t, "kubectl", kcptest.Masters).Run(t, "--server", server.URL+pathOf(p, "widgets", "*"), "get", "workspaces", "-o", "name")
	if got := strings.Fields(out); len(got) != 2 {
		t.Errorf("kubectl got %v", got)
	}
	identified := kcptest.Workspaces
	identified.Resource += ":" + identity
	list, err := server.Named("*").Dynamic(t, kcptest.Masters).Resource(identified).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) < 3 {
		t.Errorf("workspaces of all clusters, with the identity: got %v, %v", list, err)
	}
	identified.Resource = kcptest.Workspaces.Resource + ":" + identityOf(t, ctx, p)
	if _, err := server.Named("*").Dynamic(t, kcptest.Masters).Resource(identified).List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("with the identity of another export: got %v", err)
	}
	if err := inside.Delete(ctx, "made", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	sees("*", "before")
}

func TestPolicyOfRootAppliesToWorkspaces(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	parent := server.Cluster(t)
	parent.Grant(t, kcptest.Alice, "cluster-admin")
	parent.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("hers", "root", "universal"))
	kind := "apiVersion: tenancy.kcp.io/v1alpha1\nkind: WorkspaceType\nmetadata: {name: mine}\nspec: {}\n"
	status := func(in *kcptest.Cluster, what string) {
		t.Helper()
		_, err := in.Dynamic(t, kcptest.Alice).Resource(kcptest.WorkspaceTypes).
			Patch(ctx, "mine", types.MergePatchType, []byte(`{"status":{"conditions":[]}}`), metav1.PatchOptions{}, "status")
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
		if err != nil && !strings.Contains(err.Error(), `API export "root"|"tenancy.kcp.io" policy`) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := in.Dynamic(t, kcptest.Alice).Resource(kcptest.WorkspaceTypes).Get(ctx, "mine", metav1.GetOptions{}, "status"); err != nil {
			t.Errorf("%s: reading: %v", what, err)
		}
	}
	// An administrator has all permissions according to the rules of the cluster.
	parent.Apply(t, kind)
	status(parent, "with a binding")
	// This cluster has had no requests, so it stores no binding.
	fresh := server.Named(parent.GetWorkspace(t, "hers").Spec.Cluster)
	mine := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": map[string]any{"name": "mine"}, "spec": map[string]any{},
	}}
	if _, err := fresh.Dynamic(t, kcptest.Alice).Resource(kcptest.WorkspaceTypes).Create(ctx, mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	status(fresh, "without a binding")
}

func TestViewOfRootContainsAllWorkspaces(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	identityOfSystem(t, "tenancy.kcp.io")
	root, consumer := server.Named("root"), server.Cluster(t)
	consumer.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("one", "root", "universal"))
	list, err := viewOf(t, kcptest.Masters, root, "tenancy.kcp.io", "*").Resource(kcptest.Workspaces).List(ctx, metav1.ListOptions{})
	if err != nil || !slices.ContainsFunc(list.Items, func(w unstructured.Unstructured) bool { return w.GetAnnotations()["kcp.io/cluster"] == consumer.Name }) {
		t.Errorf("got workspaces %v, %v", list, err)
	}
	kcptest.Eventually(t, "the status has their URL", func(ctx context.Context) error {
		slice, err := root.Objects(t, endpoints).Get(ctx, "tenancy.kcp.io", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(slice.Object["status"]); !strings.Contains(text, "/services/apiexport/root/tenancy.kcp.io") {
			return fmt.Errorf("got status %s", text)
		}
		return nil
	})
}
