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

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// defaultBinding returns the name, and the status and claims as text, of the only binding of a workspace that is not in every workspace.
func defaultBinding(t *testing.T, ctx context.Context, workspace *kcptest.Cluster) (name, text string) {
	t.Helper()
	list, err := workspace.Objects(t, kcptest.APIBindings).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(b unstructured.Unstructured) bool {
		path, _, _ := unstructured.NestedString(b.Object, "spec", "reference", "export", "path")
		return path == "root"
	})
	if len(list.Items) != 1 {
		return "", fmt.Sprintf("got %d bindings", len(list.Items))
	}
	return list.Items[0].GetName(), fmt.Sprint(list.Items[0].Object["spec"], list.Items[0].Object["status"])
}

func TestNewWorkspaceHasAPIsOfItsType(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	claiming(t, p, `"*"`)
	for _, mode := range []string{"InitializeOnly", "Maintain"} {
		t.Run(mode, func(t *testing.T) {
			name := strings.ToLower(mode)
			p.Apply(t, fmt.Sprintf(`
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: %s}
spec:
  extend: {with: [{name: universal, path: root}]}
  defaultAPIBindings: [{export: widgets}]
  defaultAPIBindingLifecycle: %s
`, name, mode))
			made := p.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("of-"+name, p.Name, name))
			// The first request to the workspace finds the API.
			create(t, made, "one")
			binding, text := defaultBinding(t, ctx, made)
			if !strings.HasPrefix(binding, "widgets-") || !strings.Contains(text, "phase:Bound") || !strings.Contains(text, "state:Accepted") {
				t.Errorf("got binding %s: %s", binding, text)
			}
			sees(t, p, p.GetWorkspace(t, "of-"+name).Spec.Cluster, "kube-root-ca.crt", "kube-root-ca.crt")

			claiming(t, p, `"get","list","watch"`)
			defer claiming(t, p, `"*"`)
			kcptest.Eventually(t, "the binding has the claims of the export", func(ctx context.Context) error {
				_, text := defaultBinding(t, ctx, made)
				if strings.Contains(text, "PermissionClaimsMismatch") == (mode == "InitializeOnly") && strings.Contains(text, "exportPermissionClaims:[map[group: identityHash: resource:configmaps verbs:[get list watch]") {
					return nil
				}
				return fmt.Errorf("got %s", text)
			})
			if err := made.Objects(t, kcptest.APIBindings).Delete(ctx, binding, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"InitializeOnly": "", "Maintain": binding}[mode]
			kcptest.Eventually(t, "after its deletion, the binding is as the mode of the type requires", func(ctx context.Context) error {
				name, text := defaultBinding(t, ctx, made)
				if name != want || strings.Contains(text, "deletionTimestamp") {
					return fmt.Errorf("got binding %q: %s", name, text)
				}
				return nil
			})
			client := p.Objects(t, kcptest.Workspaces)
			if err := client.Delete(ctx, "of-"+name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			kcptest.Eventually(t, "the workspace, its objects and its bindings are deleted", func(ctx context.Context) error {
				_, err := client.Get(ctx, "of-"+name, metav1.GetOptions{})
				if !apierrors.IsNotFound(err) {
					return fmt.Errorf("it still exists: %v", err)
				}
				return nil
			})
		})
	}
}
