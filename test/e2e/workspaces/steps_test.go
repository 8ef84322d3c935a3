package workspaces

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// stepped creates a type with an initializer or terminator for Victor's controller, and returns the URL of its virtual workspace.
func stepped(t *testing.T, org *kcptest.Cluster, name, kind string, spec map[string]any) string {
	t.Helper()
	ctx := kcptest.Context(t)
	spec["extend"] = map[string]any{"with": []any{map[string]any{"name": "universal", "path": "root"}}}
	wt := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	client := org.Dynamic(t, kcptest.Alice).Resource(kcptest.WorkspaceTypes)
	if _, err := client.Create(ctx, wt, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	verb := strings.TrimSuffix(kind, "ing") + "e"
	org.Kubectl(t, "create", "clusterrole", verb, "--verb="+verb, "--resource=workspacetypes.tenancy.kcp.io", "--resource-name="+name)
	for _, role := range []string{verb, kcptest.EntryRole} {
		org.Kubectl(t, "create", "clusterrolebinding", kcptest.Victor.Name+"-"+kcptest.Suffix(), "--clusterrole="+role, "--user="+kcptest.Victor.Name)
	}
	var url string
	kcptest.Eventually(t, "the status of the type has the URL of its virtual workspace", func(ctx context.Context) error {
		got, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		entries, _, _ := unstructured.NestedSlice(got.Object, "status", "virtualWorkspaces")
		for _, e := range entries {
			if entry := e.(map[string]any); entry["type"] == kind {
				url = entry["url"].(string)
				return nil
			}
		}
		return fmt.Errorf("got status %v", got.Object["status"])
	})
	return url
}

// at returns a client of user for a cluster in a virtual workspace.
func at(t *testing.T, url, cluster string, user kcptest.User) dynamic.Interface {
	t.Helper()
	return server.DynamicAt(t, user, url[strings.Index(url, "/services/"):]+"/clusters/"+cluster)
}

func TestInitializerPreparesWorkspace(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	url := stepped(t, org, "prepared", "initializing", map[string]any{
		"initializer":            true,
		"initializerPermissions": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"create", "get"}}},
	})
	parent := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("parent", "", ""))
	if _, err := parent.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces).Create(ctx, kcptest.Workspace("new", org.Name, "prepared"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ws := parent.GetWorkspace(t, "new")
	if ws.Status.Phase != "Initializing" || len(ws.Status.Initializers) != 1 {
		t.Fatalf("got status %+v", ws.Status)
	}
	server.UseShardOf(ws, url)
	id := url[strings.LastIndexByte(url, '/')+1:]
	if string(ws.Status.Initializers[0]) != id {
		t.Errorf("the workspace waits for %s, want %s", ws.Status.Initializers[0], id)
	}

	// Only users with permission to initialize workspaces of the type can list the waiting ones.
	_, err := at(t, url, "*", kcptest.Stranger).Resource(kcptest.LogicalClusters).List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	waiting, err := at(t, url, "*", kcptest.Victor).Resource(kcptest.LogicalClusters).List(ctx, metav1.ListOptions{})
	if err != nil || len(waiting.Items) != 1 {
		t.Fatalf("got waiting clusters %v, %v", waiting, err)
	}
	if got := waiting.Items[0].GetAnnotations()["kcp.io/cluster"]; got != ws.Spec.Cluster {
		t.Errorf("got waiting cluster %s, want %s", got, ws.Spec.Cluster)
	}

	// The initializer has the permissions of the type in this workspace.
	inside := at(t, url, ws.Spec.Cluster, kcptest.Victor)
	prepared := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "prepared"}}}
	if _, err := inside.Resource(configMaps).Namespace("default").Create(ctx, prepared, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WantReason(t, inside.Resource(configMaps).Namespace("default").Delete(ctx, "prepared", metav1.DeleteOptions{}), metav1.StatusReasonForbidden)
	other := parent.GetWorkspace(t, "new").Annotations["kcp.io/cluster"]
	_, err = at(t, url, other, kcptest.Victor).Resource(configMaps).Namespace("default").Get(ctx, "x", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = at(t, url, "*", kcptest.Victor).Resource(configMaps).List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)

	// It can remove itself, and no other initializer.
	logicalClusters := inside.Resource(kcptest.LogicalClusters)
	_, err = logicalClusters.Patch(ctx, "cluster", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonMethodNotAllowed)
	waitFor := func(initializers ...string) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers of the server write its conditions
			lc, err := logicalClusters.Get(ctx, "cluster", metav1.GetOptions{})
			if err != nil {
				return err
			}
			_ = unstructured.SetNestedStringSlice(lc.Object, initializers, "status", "initializers")
			_, err = logicalClusters.UpdateStatus(ctx, lc, metav1.UpdateOptions{})
			return err
		})
	}
	kcptest.WantReason(t, waitFor(id, "root:other"), metav1.StatusReasonForbidden)
	if err := waitFor(); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the workspace is ready", func(context.Context) error {
		if got := parent.GetWorkspace(t, "new"); got.Status.Phase != "Ready" || len(got.Status.Initializers) > 0 {
			return fmt.Errorf("got status %+v", got.Status)
		}
		return nil
	})
	_, err = inside.Resource(configMaps).Namespace("default").Get(ctx, "prepared", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = inside.Resource(kcptest.LogicalClusters).Get(ctx, "cluster", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	if _, err := server.Named(parent.Name+":new").Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, "prepared", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestInitializerWithoutPermissionsActsAsOwner(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	url := stepped(t, org, "owned", "initializing", map[string]any{"initializer": true})
	parent := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("parent", "", ""))
	if _, err := parent.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces).Create(ctx, kcptest.Workspace("new", org.Name, "owned"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	inside := at(t, url, parent.GetWorkspace(t, "new").Spec.Cluster, kcptest.Victor)
	secrets := inside.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("default")
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "made"}}}
	if _, err := secrets.Create(ctx, made, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := inside.Resource(kcptest.LogicalClusters).Patch(ctx, "cluster", types.MergePatchType, []byte(`{"status":{"initializers":[]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the workspace is ready", func(context.Context) error {
		if got := parent.GetWorkspace(t, "new"); got.Status.Phase != "Ready" {
			return fmt.Errorf("got status %+v", got.Status)
		}
		return nil
	})
}

func TestTerminatorCleansUpBeforeWorkspaceIsDeleted(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	url := stepped(t, org, "cleaned", "terminating", map[string]any{
		"terminator":            true,
		"terminatorPermissions": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"list"}}},
	})
	parent := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("parent", "", ""))
	going := parent.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("going", org.Name, "cleaned"))
	going.Kubectl(t, "create", "configmap", "left")
	ws := parent.GetWorkspace(t, "going")
	server.UseShardOf(ws, url)
	inside := at(t, url, ws.Spec.Cluster, kcptest.Victor)
	_, err := inside.Resource(configMaps).Namespace("default").List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)

	workspaces := parent.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	if err := workspaces.Delete(ctx, "going", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the logical cluster waits for the terminator", func(ctx context.Context) error {
		found, err := at(t, url, "*", kcptest.Victor).Resource(kcptest.LogicalClusters).List(ctx, metav1.ListOptions{})
		if err != nil || len(found.Items) != 1 {
			return fmt.Errorf("got waiting clusters %v: %w", found, err)
		}
		return nil
	})
	kcptest.Eventually(t, "the workspace is terminating", func(context.Context) error {
		if got := parent.GetWorkspace(t, "going"); got.Status.Phase != "Terminating" || !slices.Contains(got.Finalizers, "core.kcp.io/logicalcluster") {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	found, err := inside.Resource(configMaps).Namespace("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(found.Items) != 2 {
		t.Errorf("the terminator finds %v: %v", found, err)
	}
	_, err = inside.Resource(kcptest.LogicalClusters).Patch(ctx, "cluster", types.MergePatchType, []byte(`{"status":{"terminators":["root:other"]}}`), metav1.PatchOptions{}, "status")
	if kcptest.WantReason(t, err, metav1.StatusReasonInvalid); !strings.Contains(err.Error(), `" terminator is supported`) {
		t.Errorf("removing another terminator: got %v", err)
	}
	if _, err := inside.Resource(kcptest.LogicalClusters).Patch(ctx, "cluster", types.MergePatchType, []byte(`{"status":{"terminators":[]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, workspaces, "going")
}
