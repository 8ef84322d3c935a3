package security

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources: [{group: "", resources: [secrets]}]
- level: RequestResponse
  resources: [{group: "", resources: [configmaps]}]
- level: Metadata
`

// events returns the matching events of the audit log.
func events(t *testing.T, match func(*auditv1.Event) bool) []*auditv1.Event {
	t.Helper()
	content, err := os.ReadFile(environment.auditLog)
	if err != nil {
		t.Fatal(err)
	}
	var found []*auditv1.Event
	for line := range bytes.Lines(content) {
		event := &auditv1.Event{}
		if err := json.Unmarshal(line, event); err != nil {
			continue // the line is incomplete
		}
		if match(event) {
			found = append(found, event)
		}
	}
	return found
}

// awaitEvent waits for the event of a request that only this test sends, and returns it.
func awaitEvent(t *testing.T, verb, resource, name, cluster string) *auditv1.Event {
	t.Helper()
	var found []*auditv1.Event
	kcptest.Eventually(t, fmt.Sprintf("%s of %s %s is in the audit log", verb, resource, name), func(contextType) error {
		found = events(t, func(e *auditv1.Event) bool {
			return e.Verb == verb && e.ObjectRef != nil && e.ObjectRef.Resource == resource && e.ObjectRef.Name == name &&
				e.Annotations["kcp.io/cluster"] == cluster
		})
		if len(found) == 0 {
			return fmt.Errorf("no such event")
		}
		return nil
	})
	return found[0]
}

func TestAuditEventsHaveClusterAndAuthorizationDecisions(t *testing.T) {
	c := environment.server.Cluster(t)
	c.Grant(t, kcptest.Alice, "view")
	ctx := kcptest.Context(t)
	masters, alice := c.Kube(t, kcptest.Masters).CoreV1(), c.Kube(t, kcptest.Alice).CoreV1()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "audited"}, StringData: map[string]string{"k": plain}}
	if _, err := masters.Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "audited"}, Data: map[string]string{"k": "shown"}}
	if _, err := masters.ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.ConfigMaps("default").Get(ctx, "audited", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	err := alice.ConfigMaps("default").Delete(ctx, "audited", metav1.DeleteOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)

	created := awaitEvent(t, "create", "secrets", "audited", c.Name)
	raw, err := json.Marshal(created)
	if err != nil {
		t.Fatal(err)
	}
	if created.RequestObject != nil || created.ResponseObject != nil || bytes.Contains(raw, []byte(plain)) {
		t.Errorf("the content of a secret is in the audit log: %s", raw)
	}
	if a := created.Annotations; a["kcp.io/path"] != c.Name || a["tenancy.kcp.io/workspace"] != c.Name {
		t.Errorf("the event does not have the path and the workspace: %v", a)
	}
	shown := awaitEvent(t, "create", "configmaps", "audited", c.Name)
	if shown.RequestObject == nil || !strings.Contains(string(shown.RequestObject.Raw), "shown") {
		t.Error("the content of a ConfigMap is not in the audit log, although the policy requires it")
	}
	for verb, want := range map[string]struct{ decision, step string }{
		"get": {"allow", "Allowed"}, "delete": {"forbid", "NoOpinion"},
	} {
		event := awaitEvent(t, verb, "configmaps", "audited", c.Name)
		if event.User.Username != kcptest.Alice.Name || event.Annotations["authorization.k8s.io/decision"] != want.decision {
			t.Errorf("%s: user %s, annotations %v", verb, event.User.Username, event.Annotations)
		}
		steps, last := 0, ""
		for key, value := range event.Annotations {
			if strings.HasPrefix(key, "request.auth.kcp.io/") && strings.HasSuffix(key, "-decision") {
				if steps++; strings.Contains(key, "local") || strings.Contains(key, "union") || strings.Contains(key, "rbac") {
					last = value
				}
			}
		}
		if steps < 2 {
			t.Errorf("%s: the steps of authorization are not in the audit log: %v", verb, event.Annotations)
		}
		if last != "" && last != want.step {
			t.Errorf("%s: the decision of RBAC is %q, want %q: %v", verb, last, want.step, event.Annotations)
		}
	}
}

func TestAuditEventsMarkRequestThatCreatedDefaultObjects(t *testing.T) {
	c := environment.server.Cluster(t) // enters it by reading a namespace
	if got := awaitEvent(t, "get", "namespaces", "default", c.Name).Annotations["entry.kcp.io/content"]; got != "created" {
		t.Errorf("the first request: %q", got)
	}
	if _, err := c.Kube(t, kcptest.Masters).CoreV1().ServiceAccounts("default").Get(kcptest.Context(t), "default", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := awaitEvent(t, "get", "serviceaccounts", "default", c.Name).Annotations["entry.kcp.io/content"]; got != "" {
		t.Errorf("a later request: %q", got)
	}
}

func TestUnauthenticatedRequestIsAuditedWithItsCluster(t *testing.T) {
	c := environment.server.Cluster(t)
	forged := kcptest.User{Name: "forged", Token: "not-a-token"}
	_, err := c.Kube(t, forged).CoreV1().ConfigMaps("default").Get(kcptest.Context(t), "refused", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonUnauthorized)
	event := awaitEvent(t, "get", "configmaps", "refused", c.Name)
	if event.ResponseStatus == nil || event.ResponseStatus.Code != 401 {
		t.Errorf("the response in the audit log is %v", event.ResponseStatus)
	}
}

func TestRequestsAreTracedDownToEtcd(t *testing.T) {
	c := environment.server.Cluster(t)
	c.Kubectl(t, "create", "configmap", "traced")
	kcptest.Eventually(t, "the collector has spans of the request, its parts and its calls of etcd", func(contextType) error {
		names := environment.spans.names()
		for _, want := range []string{"Resolve path", "Authorize", "Create default objects", "Create", "Create etcd3", "etcdserverpb.KV/Txn"} {
			if names[want] == 0 {
				return fmt.Errorf("no span has the name %q: %v", want, names)
			}
		}
		return nil
	})
	for name := range environment.spans.names() {
		if strings.Contains(name, c.Name) {
			t.Errorf("the name of a span contains the cluster: %s", name)
		}
	}
}
