package workspaces

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const placeAnnotation = "internal.tenancy.kcp.io/cluster"

// homeOfSomebody is the logical cluster of the home of a user who has not requested it yet.
const homeOfSomebody = "3vb3vnc5wmgrr"

// A user who could choose the logical cluster of a workspace would own the home of a user who has not requested it yet, or, with
// system:admin, all objects.
func TestUsersCannotChooseLogicalClusterOfWorkspace(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	workspaces := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	for i, wanted := range []string{"system:admin", "system:shard", homeOfSomebody, "0123456789abcdef"} {
		name := fmt.Sprintf("w%d", i)
		ws := kcptest.Workspace(name, "", "")
		ws.SetAnnotations(map[string]string{placeAnnotation: wanted})
		// No shard accepts the workspace yet.
		_ = unstructured.SetNestedStringMap(ws.Object, map[string]string{"nowhere": "yes"}, "spec", "location", "selector", "matchLabels")
		made, err := workspaces.Create(ctx, ws, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := made.GetAnnotations()[placeAnnotation]; got == wanted {
			t.Errorf("workspace %s has the annotation %s", name, got)
		}
		refuses(t, workspaces, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, placeAnnotation, wanted), "set by the system")
		if _, err := workspaces.Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"location":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		kcptest.Eventually(t, "the workspace has a logical cluster", func(context.Context) error {
			if got := org.GetWorkspace(t, name); got.Spec.Cluster == "" {
				return fmt.Errorf("got status %+v", got.Status)
			}
			return nil
		})
		if got := org.GetWorkspace(t, name); got.Spec.Cluster == wanted {
			t.Errorf("workspace %s got the requested logical cluster %s", name, wanted)
		}
	}
	if code, body := org.Raw(t, kcptest.Alice, http.MethodGet, "/clusters/*/api/v1/secrets", nil, ""); code != http.StatusForbidden {
		t.Errorf("listing the secrets of all logical clusters: got %d %.200s", code, body)
	}
}

// Policies run after the system has set its fields. They must not change them for users who could not set these fields themselves.
func TestPoliciesCannotChangeSystemFields(t *testing.T) {
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
    resourceRules: [{apiGroups: [tenancy.kcp.io, apis.kcp.io], apiVersions: ["*"], operations: [CREATE], resources: [workspaces, apiexports]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        [JSONPatch{op: "add", value: '{"username":"bob"}', path: object.metadata.labels["forge"] == "cluster" ? "/spec/cluster" :
          "/metadata/annotations/" + jsonpatch.escapeKey(object.metadata.labels["forge"].replace("__", "/"))}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: forge}
spec: {policyName: forge}
`)
	forged := func(obj *unstructured.Unstructured, in schema.GroupVersionResource, key string) {
		t.Helper()
		obj.SetLabels(map[string]string{"forge": key})
		for _, user := range []kcptest.User{kcptest.Alice, kcptest.Masters} {
			kcptest.Eventually(t, key+" cannot be forged when "+user.Name+" writes", func(ctx context.Context) error {
				obj.SetName("x-" + kcptest.Suffix())
				_, err := org.Dynamic(t, user).Resource(in).Create(ctx, obj, metav1.CreateOptions{})
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "mutating webhooks and policies cannot change it") {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
		}
	}
	for _, key := range []string{"experimental.tenancy.kcp.io__owner", "internal.tenancy.kcp.io__cluster", "cluster"} {
		forged(kcptest.Workspace("", "", ""), kcptest.Workspaces, key)
	}
	forged(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport"}},
		apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"), "kcp.io__path")
}
