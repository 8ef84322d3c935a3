package kcptest

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// The resources of the workspace tree.
var (
	Workspaces     = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	WorkspaceTypes = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspacetypes")
)

// Workspace returns a Workspace object whose type is <path>:<name>, <name>, or empty.
func Workspace(name, path, typeName string) *unstructured.Unstructured {
	spec := map[string]any{}
	if typeName != "" {
		ref := map[string]any{"name": typeName}
		if path != "" {
			ref["path"] = path
		}
		spec["type"] = ref
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// On lets a Workspace object select the shard with that name.
func On(shard string, ws *unstructured.Unstructured) *unstructured.Unstructured {
	labels := map[string]any{"matchLabels": map[string]any{"name": shard}}
	if err := unstructured.SetNestedMap(ws.Object, labels, "spec", "location", "selector"); err != nil {
		panic(err) // the object has no such field of another type
	}
	return ws
}

// CreateWorkspace creates a workspace in the cluster as user, and waits until it is ready. The returned cluster has the path of the
// workspace as its name.
func (c *Cluster) CreateWorkspace(t testing.TB, user User, ws *unstructured.Unstructured) *Cluster {
	t.Helper()
	ws, shard := c.server.together(t, ws)
	client := c.Dynamic(t, user).Resource(Workspaces)
	if _, err := client.Create(Context(t), ws, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating workspace %s in %s: %v", ws.GetName(), c.Name, err)
	}
	Eventually(t, "workspace "+ws.GetName()+" is ready", func(ctx context.Context) error {
		got := c.GetWorkspace(t, ws.GetName())
		if got.Status.Phase != "Ready" {
			return fmt.Errorf("phase is %q", got.Status.Phase)
		}
		return nil
	})
	created := c.server.Named(c.Name + ":" + ws.GetName())
	if shard.URL != "" {
		c.server.placed.Store(created.Name, shard.URL)
		c.server.placed.Store(c.GetWorkspace(t, ws.GetName()).Spec.Cluster, shard.URL)
	}
	return created
}

// Organization creates a workspace in root, owned by user, and permits user to create workspaces there.
func (s *Server) Organization(t testing.TB, user User) *Cluster {
	t.Helper()
	root := s.Named("root")
	root.Kubectl(t, "create", "clusterrolebinding", "creator-"+Suffix(), "--clusterrole=cluster-admin", "--user="+user.Name)
	Eventually(t, user.Name+" can create workspaces in root", func(ctx context.Context) error {
		_, err := root.Dynamic(
			t,
			user,
		).Resource(
			Workspaces,
		).Create(
			ctx,
			Workspace("try", "", ""),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}},
		)
		return err
	})
	return root.CreateWorkspace(t, user, Workspace("org-"+Suffix(), "", ""))
}

// GetWorkspace returns a workspace of the cluster.
func (c *Cluster) GetWorkspace(t testing.TB, name string) *tenancyv1alpha1.Workspace {
	t.Helper()
	u, err := c.Dynamic(t, Masters).Resource(Workspaces).Get(Context(t), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ws := &tenancyv1alpha1.Workspace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, ws); err != nil {
		t.Fatal(err)
	}
	return ws
}
