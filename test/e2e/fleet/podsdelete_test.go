package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// protection is a policy of a workspace that protects one pod.
const protection = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: protection}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["*"], resources: [pods], operations: [DELETE]}]}
  validations: [{expression: "oldObject.metadata.name != 'kept' || oldObject.kind != 'Pod'", message: this pod is kept}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: protection}
spec: {policyName: protection, validationActions: [Deny]}
`

// exists reports whether a pod of a workspace exists on east.
func (f *fleet) exists(t *testing.T, w *kcptest.Cluster, pod string) bool {
	t.Helper()
	_, err := f.clusters["east"].kube.CoreV1().Pods(w.Name+"-default").Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// deletesPods checks who deletes pods.
func (f *fleet) deletesPods(t *testing.T, w, other *kcptest.Cluster) {
	for _, pod := range []string{"gone", "kept"} {
		f.clusters["east"].createPod(t, w.Name+"-default", pod)
	}
	path := func(c *kcptest.Cluster, pod string) string {
		return "/clusters/" + c.Name + "/api/v1/namespaces/default/pods/" + pod
	}
	user := kcptest.Bob
	w.Kubectl(t, "create", "clusterrolebinding", "access-bob", "--clusterrole="+kcptest.EntryRole, "--user="+user.Name)
	w.Kubectl(t, "create", "role", "reader", "-n", "default", "--verb=get,list,watch", "--resource=pods")
	w.Kubectl(t, "create", "rolebinding", "reader", "-n", "default", "--role=reader", "--user="+user.Name)
	kcptest.Eventually(t, "Bob reads the pod", func(context.Context) error {
		if code, body := w.Raw(t, user, http.MethodGet, path(w, "gone"), nil, ""); code != http.StatusOK {
			return fmt.Errorf("got %d %s", code, body)
		}
		return nil
	})
	expect := func(what string, c *kcptest.Cluster, user kcptest.User, path, body string, want int) {
		t.Helper()
		if code, body := c.Raw(t, user, http.MethodDelete, path, nil, body); code != want {
			t.Errorf("%s: got %d %s, want %d", what, code, body, want)
		}
	}
	expect("a user without the permission", w, user, path(w, "gone"), "", http.StatusForbidden)
	expect("from another workspace", other, kcptest.Masters, path(other, "gone"), "", http.StatusNotFound)
	expect("all at once", w, kcptest.Masters, path(w, ""), "", http.StatusMethodNotAllowed)
	expect("a subresource", w, kcptest.Masters, path(w, "gone/log"), "", http.StatusMethodNotAllowed)
	expect("another pod of the same name", w, kcptest.Masters, path(w, "gone"), `{"preconditions":{"uid":"1234"}}`, http.StatusConflict)
	expect("an invalid option", w, kcptest.Masters, path(w, "gone"), `{"dryRun":["Some"]}`, http.StatusUnprocessableEntity)
	w.Kubectl(t, "delete", "pod", "gone", "-n", "default", "--dry-run=server")
	if !f.exists(t, w, "gone") {
		t.Fatal("the pod is gone without a permitted deletion")
	}
	w.Kubectl(t, "create", "role", "deleter", "-n", "default", "--verb=delete", "--resource=pods")
	w.Kubectl(t, "create", "rolebinding", "deleter", "-n", "default", "--role=deleter", "--user="+user.Name)
	w.Apply(t, protection)
	kcptest.Eventually(t, "a policy of the workspace protects the pod", func(context.Context) error {
		code, body := w.Raw(t, user, http.MethodDelete, path(w, "kept")+"?dryRun=All", nil, "")
		if code != http.StatusUnprocessableEntity || !strings.Contains(string(body), "this pod is kept") {
			return fmt.Errorf("got %d %s", code, body)
		}
		return nil
	})
	expect("a pod that a policy protects", w, user, path(w, "kept"), "", http.StatusUnprocessableEntity)
	w.Command(t, "kubectl", user).Run(t, "delete", "pod", "gone", "-n", "default", "--grace-period=0", "--force")
	if f.exists(t, w, "gone") || !f.exists(t, w, "kept") {
		t.Error("another pod than the one that the user named is deleted")
	}
}

// deletesOnlyWithConsent checks that the Endpoint decides whether pods can be deleted.
func (f *fleet) deletesOnlyWithConsent(t *testing.T, w, _ *kcptest.Cluster) {
	f.clusters["east"].createPod(t, w.Name+"-default", "consent")
	set := func(verbs string) {
		f.provider.Kubectl(t, "patch", "endpoints.fleet.kcp.io", v1alpha1.PodsEndpoint, "--subresource=status", "--type=json",
			`--patch=[{"op":"add","path":"/status/endpoints/0/verbs","value":`+verbs+`}]`)
	}
	set("[]")
	pods := w.Kube(t, kcptest.Masters).CoreV1().Pods("default")
	dryRun := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	kcptest.Eventually(t, "pods are read-only", func(ctx context.Context) error {
		if err := pods.Delete(ctx, "consent", dryRun); !apierrors.IsMethodNotSupported(err) {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})
	if err := pods.Delete(t.Context(), "consent", metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("without the verb: got %v", err)
	}
	set(`["delete"]`)
	kcptest.Eventually(t, "pods can be deleted", func(ctx context.Context) error { return pods.Delete(ctx, "consent", dryRun) })
}

// limitsDeletions checks that the cluster limits what the agent deletes.
func (f *fleet) limitsDeletions(t *testing.T, w, _ *kcptest.Cluster) {
	east := f.clusters["east"]
	east.createPod(t, "kube-system", "important")
	config, err := clientcmd.BuildConfigFromFlags("", east.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.CoreV1().Pods("kube-system").Delete(t.Context(), "important", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a pod of the cluster: got %v", err)
	}
	dryRun := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	if err := agent.CoreV1().Pods(w.Name+"-default").Delete(t.Context(), "web-1", dryRun); err != nil {
		t.Errorf("a pod of the fleet: got %v", err)
	}
}
