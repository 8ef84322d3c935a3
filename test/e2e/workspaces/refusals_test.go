package workspaces

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// refuses fails the test unless a patch is refused with a message that contains text.
func refuses(t *testing.T, resource dynamic.ResourceInterface, name, patch, text string, subresources ...string) {
	t.Helper()
	_, err := resource.Patch(kcptest.Context(t), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	if err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want %q", patch, err, text)
	}
}

// The owner administers the workspace from its creation to its deletion, and must not be able to skip initializers or terminators.
func TestOwnersCannotSkipInitializersOrTerminators(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	url := stepped(t, org, "careful", "initializing", map[string]any{"initializer": true, "terminator": true})
	workspaces := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	if _, err := workspaces.Create(ctx, kcptest.Workspace("w", "", "careful"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	inside := server.Named(org.Name + ":w")
	clusters := inside.Dynamic(t, kcptest.Alice).Resource(kcptest.LogicalClusters)
	kcptest.Eventually(t, "the owner can enter", func(ctx context.Context) error {
		_, err := clusters.Get(ctx, "cluster", metav1.GetOptions{})
		return err
	})
	for _, patch := range []string{`{"status":{"initializers":[]}}`, `{"status":{"initializers":["root:other"]}}`, `{"status":{"terminators":[]}}`} {
		refuses(t, clusters, "cluster", patch, "changed by their controllers only", "status")
	}
	for _, patch := range []string{`{"status":{"phase":"Ready"}}`, `{"status":{"URL":"https://evil"}}`} {
		refuses(t, clusters, "cluster", patch, "set by the system", "status")
	}
	if got := org.GetWorkspace(t, "w"); got.Status.Phase != "Initializing" {
		t.Errorf("got status %+v", got.Status)
	}
	at := at(t, url, org.GetWorkspace(t, "w").Spec.Cluster, kcptest.Victor).Resource(kcptest.LogicalClusters)
	if _, err := at.Patch(ctx, "cluster", types.MergePatchType, []byte(`{"status":{"initializers":[]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the workspace is ready", func(context.Context) error {
		if got := org.GetWorkspace(t, "w"); got.Status.Phase != "Ready" {
			return fmt.Errorf("got status %+v", got.Status)
		}
		return nil
	})

	if err := workspaces.Delete(ctx, "w", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the workspace waits for its terminator", func(context.Context) error {
		if got := org.GetWorkspace(t, "w"); got.Status.Phase != "Terminating" {
			return fmt.Errorf("got status %+v", got.Status)
		}
		return nil
	})
	refuses(t, clusters, "cluster", `{"status":{"terminators":[]}}`, "changed by their controllers only", "status")
	refuses(t, clusters, "cluster", `{"metadata":{"finalizers":[]}}`, "removed by the system")
	refuses(t, workspaces, "w", `{"metadata":{"finalizers":[]}}`, "removed by the system")
}

// A workspace can be open to some groups only, regardless of who administers it.
func TestOwnersCannotChangeRequiredGroups(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	team := server.Organization(t, kcptest.Alice).CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("team", "", ""))
	const patch = `{"metadata":{"annotations":{"authorization.kcp.io/required-groups":"team-a"}}}`
	clusters := team.Dynamic(t, kcptest.Alice).Resource(kcptest.LogicalClusters)
	refuses(t, clusters, "cluster", patch, "administrators of the installation")
	if _, err := team.Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters).Patch(ctx, "cluster", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	refuses(t, clusters, "cluster", `{"metadata":{"annotations":{"authorization.kcp.io/required-groups":null}}}`, "administrators of the installation")
	if _, err := team.Kube(t, kcptest.Alice).CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}
