package mounts

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestMountingRequiresPermissionToGetObject(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	org.Kubectl(t, "create", "clusterrole", "creator", "--verb=create", "--resource=workspaces.tenancy.kcp.io")
	for _, role := range []string{"creator", kcptest.EntryRole} {
		org.Kubectl(t, "create", "clusterrolebinding", "bob-"+role, "--clusterrole="+role, "--user="+kcptest.Bob.Name)
	}
	workspaces := org.Dynamic(t, kcptest.Bob).Resource(kcptest.Workspaces)
	refused := func(ws, text string) {
		t.Helper()
		kcptest.Eventually(t, "the mount is refused", func(context.Context) error {
			_, err := workspaces.Create(ctx, mounting(ws, "prod"), metav1.CreateOptions{})
			if err == nil || !strings.Contains(err.Error(), text) {
				return fmt.Errorf("got %v, want %q", err, text)
			}
			return nil
		})
	}
	refused("early", "kind KubeCluster of contrib.example.org/v1 is not served")
	org.Define(t, definition())
	point(t, org, "prod", "Ready", elsewhere.URL)
	refused("stolen", "missing verb='get' permission on kubeclusters.contrib.example.org")
	org.Kubectl(t, "create", "clusterrole", "prod", "--verb=get", "--resource=kubeclusters.contrib.example.org", "--resource-name=prod")
	org.Kubectl(t, "create", "clusterrolebinding", "prod", "--clusterrole=prod", "--user="+kcptest.Bob.Name)
	kcptest.Eventually(t, "Bob can mount", func(context.Context) error {
		_, err := workspaces.Create(ctx, mounting("mounted", "prod"), metav1.CreateOptions{})
		return err
	})
	want(t, org, "mounted", "Ready", "", "")
	if _, err := workspaces.Create(ctx, mounting("other", "dev"), metav1.CreateOptions{}); err == nil {
		t.Error("Bob can mount an object that he has no permission to get")
	}
}

func TestAnnotationOfOlderManifestsIsSupported(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org, _ := ready(t, elsewhere.URL)
	workspaces := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	annotated := func(name, annotation string) error {
		ws := kcptest.Workspace(name, "", "")
		ws.SetAnnotations(map[string]string{"experimental.tenancy.kcp.io/mount": annotation})
		_, err := workspaces.Create(ctx, ws, metav1.CreateOptions{})
		return err
	}
	if err := annotated("legacy", `{"spec":{"ref":{"apiVersion":"contrib.example.org/v1","kind":"KubeCluster","name":"prod"}}}`); err != nil {
		t.Fatal(err)
	}
	want(t, org, "legacy", "Ready", "", "")
	if ws := org.GetWorkspace(t, "legacy"); ws.Spec.URL != elsewhere.URL || ws.Spec.Type != nil || ws.Spec.Cluster != "" {
		t.Errorf("got workspace %+v", ws.Spec)
	}
	for annotation, text := range map[string]string{
		"prod":                             "annotation experimental.tenancy.kcp.io/mount is invalid",
		`{"spec":{"ref":{"name":"prod"}}}`: "needs apiVersion",
		`{"spec":{"to":{"name":"prod"}}}`:  "unknown field",
		`{"spec":{"ref":{"apiVersion":"v1","kind":"Secret","name":"x","namespace":"default"}}}`: "built-in type",
	} {
		if err := annotated("bad", annotation); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v, want %q", annotation, err, text)
		}
	}
	org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("plain", "", ""))
	patch := []byte(`{"metadata":{"annotations":{"experimental.tenancy.kcp.io/mount":"{}"}}}`)
	if _, err := workspaces.Patch(ctx, "plain", types.MergePatchType, patch, metav1.PatchOptions{}); err == nil || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("got %v", err)
	}
}
