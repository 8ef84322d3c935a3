package workspaces

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/tree"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const placeAnnotation = "internal.tenancy.kcp.io/cluster"

// Whoever chose the logical cluster of a workspace would own the home of somebody who has not come yet, or, in system:admin,
// everything there is.
func TestNobodyChoosesTheLogicalClusterOfAWorkspace(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	workspaces := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	for i, wanted := range []string{"system:admin", "system:shard", string(tree.HomeCluster("user-" + kcptest.Suffix())), "0123456789abcdef"} {
		name := fmt.Sprintf("w%d", i)
		ws := kcptest.Workspace(name, "", "")
		ws.SetAnnotations(map[string]string{placeAnnotation: wanted})
		// No shard takes it yet.
		_ = unstructured.SetNestedStringMap(ws.Object, map[string]string{"nowhere": "yes"}, "spec", "location", "selector", "matchLabels")
		made, err := workspaces.Create(ctx, ws, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := made.GetAnnotations()[placeAnnotation]; got == wanted {
			t.Errorf("the annotation of %s is %s", name, got)
		}
		refuses(t, workspaces, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, placeAnnotation, wanted), "written by the system")
		if _, err := workspaces.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"location":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		kcptest.Eventually(t, "the workspace is somewhere", func(context.Context) error {
			if got := org.GetWorkspace(t, name); got.Spec.Cluster == "" {
				return fmt.Errorf("its status is %+v", got.Status)
			}
			return nil
		})
		if got := org.GetWorkspace(t, name); got.Spec.Cluster == wanted {
			t.Errorf("%s is in %s, as it wanted", name, wanted)
		}
	}
	if code, body := org.Raw(t, kcptest.Alice, http.MethodGet, "/clusters/*/api/v1/secrets", nil, ""); code != http.StatusForbidden {
		t.Errorf("all secrets of all logical clusters: %d %.200s", code, body)
	}
}

// Policies come after the system has written what it says of a new workspace.
func TestNoPolicyChangesWhatTheSystemSaysOfAWorkspace(t *testing.T) {
	t.Parallel()
	org := server.Organization(t, kcptest.Alice)
	org.Apply(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: forge}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules: [{apiGroups: [tenancy.kcp.io], apiVersions: ["*"], operations: [CREATE], resources: [workspaces]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        [JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey(object.metadata.labels["forge"].replace("__", "/")), value: '{"username":"bob"}'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: forge}
spec: {policyName: forge}
`)
	for _, key := range []string{"experimental.tenancy.kcp.io__owner", "internal.tenancy.kcp.io__cluster"} {
		kcptest.Eventually(t, key+" cannot be forged", func(ctx context.Context) error {
			ws := kcptest.Workspace("w-"+kcptest.Suffix(), "", "")
			ws.SetLabels(map[string]string{"forge": key})
			_, err := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces).Create(ctx, ws, metav1.CreateOptions{})
			if err == nil {
				return fmt.Errorf("it was created")
			}
			kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
			return nil
		})
	}
}
