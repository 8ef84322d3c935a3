package security

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// converted is a definition with a conversion webhook, and with a placeholder for its clientConfig.
const converted = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.example.com}
spec:
  group: example.com
  names: {plural: %[1]s, singular: %[1]s, kind: K%[1]s, listKind: K%[1]sList}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: %[2]s}
`

// A server with an external address connects to no address of its own machine that a tenant configures.
func TestServerConnectsToPublicHostsOfTenantsOnly(t *testing.T) {
	server := kcptest.StartIn(t, t.TempDir(), "--shard-external-url=https://kcp.example.com")
	c := server.Cluster(t)
	var connected atomic.Int32
	counting := func() *tls.Config {
		return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			connected.Add(1)
			return nil, nil
		}}
	}
	inside := httptest.NewUnstartedServer(http.NotFoundHandler())
	inside.TLS = counting()
	inside.StartTLS()
	t.Cleanup(inside.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: inside.Certificate().Raw})

	fail, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	_, err := c.Kube(t, kcptest.Masters).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(kcptest.Context(t), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "inside"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "inside.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &inside.URL, CABundle: ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the webhook is not called", func(ctx contextType) error {
		_, err := c.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "does not call") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})

	for name, test := range map[string]struct{ clientConfig, want string }{
		"urls":     {fmt.Sprintf("{url: %q}", inside.URL), "does not call"},
		"services": {"{service: {name: kubernetes, namespace: default}}", "has no Services"},
	} {
		c.Apply(t, fmt.Sprintf(converted, name, test.clientConfig))
		c.WaitForDefinition(t, name+".example.com")
		in := func(version string) schema.GroupVersionResource {
			return schema.GroupVersionResource{Group: "example.com", Version: version, Resource: name}
		}
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "K" + name, "metadata": map[string]any{"name": "one"}}}
		if _, err := c.Dynamic(t, kcptest.Masters).Resource(in("v1")).Create(kcptest.Context(t), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Dynamic(t, kcptest.Masters).Resource(in("v2")).Get(kcptest.Context(t), "one", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}

	issuer, err := kcptest.NewIssuer(counting())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(issuer.Close)
	org := server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("org", "", ""))
	org.Apply(t, issuer.TrustedBy("tenanted", issuer.CA()))
	team := org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("team", "", "tenanted"))
	token, err := issuer.Token(issuer.Claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	_, err = whoIs(t, team, token)
	kcptest.WantReason(t, err, metav1.StatusReasonUnauthorized)
	if n := connected.Load(); n > 0 {
		t.Errorf("the server connected %d times to a forbidden address", n)
	}
}
