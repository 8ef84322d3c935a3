package security

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// unpacked is the size of each bomb after decompression. allowed is how much the server may allocate for it.
const unpacked, allowed = 300 << 20, 150 << 20

// packed returns a gzip bomb: JSON that begins like a response, and continues with spaces.
func packed(t *testing.T) []byte {
	t.Helper()
	pack := func(content []byte) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	const member = 10 << 20
	return append(pack([]byte("{")), bytes.Repeat(pack(bytes.Repeat([]byte(" "), member)), unpacked/member)...)
}

// answerWithCopies answers a review with a patch that doubles the data of an object repeatedly.
func answerWithCopies(w http.ResponseWriter, r *http.Request) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	patch := []string{`{"op":"add","path":"/data","value":{"a":{}}}`}
	for n := range 40 {
		patch = append(patch, fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/x%d"}`, n))
	}
	patchType := admissionv1.PatchTypeJSONPatch
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: &patchType, Patch: []byte("[" + strings.Join(patch, ",") + "]")}
	_ = json.NewEncoder(w).Encode(review)
}

var allocatedBytes = regexp.MustCompile(`(?m)^go_memstats_alloc_bytes_total (\S+)$`)

// allocated returns the number of bytes that the server has allocated since its start.
func allocated(t *testing.T) float64 {
	t.Helper()
	_, body := environment.server.Named("root").Raw(t, kcptest.Masters, http.MethodGet, "/metrics", nil, "")
	found := allocatedBytes.FindSubmatch(body)
	if found == nil {
		t.Fatalf("the metric of allocations is missing: %.300s", body)
	}
	n, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// within fails the test if the server allocates much during do.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	before := allocated(t)
	do()
	after := allocated(t)
	t.Logf("%s: %.0f MiB allocated", what, (after-before)/(1<<20))
	if after-before > allowed {
		t.Errorf("%s: the server allocated %.0f bytes", what, after-before)
	}
}

// The server reads only a limited part of the responses of hosts that tenants configure, and reports the limit.
func TestResponsesOfTenantHostsAreLimited(t *testing.T) {
	bomb := packed(t)
	var asked atomic.Int32
	host := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/copies" {
			answerWithCopies(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/packed") || strings.HasPrefix(r.URL.Path, "/.well-known/") {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb)
			return
		}
		spaces := bytes.Repeat([]byte(" "), 1<<20)
		for range unpacked / len(spaces) {
			if _, err := w.Write(spaces); err != nil {
				return
			}
		}
	}))
	host.TLS = &tls.Config{}
	host.StartTLS()
	t.Cleanup(host.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: host.Certificate().Raw})
	address := host.Listener.Addr().String()
	c := environment.server.Cluster(t)

	for kind, field := range map[string]string{"ValidatingWebhookConfiguration": "validating", "MutatingWebhookConfiguration": "mutating"} {
		for path, want := range map[string]string{
			"packed": "calling " + address + `: the response has Content-Encoding "gzip"`,
			"plain":  "calling " + address + ": the response has more than",
			"copies": "size increase of copy",
		} {
			if path == "copies" && field == "validating" {
				continue
			}
			name := field + "-" + path
			c.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]s
metadata: {name: %[2]s}
webhooks:
- name: %[2]s.example.com
  clientConfig: {url: %[3]q, caBundle: %[4]q}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
  objectSelector: {matchLabels: {bomb: %[2]s}}
  sideEffects: None
  failurePolicy: Fail
  admissionReviewVersions: [v1]
`, kind, name, host.URL+"/"+path, base64Of(ca)))
			objects := c.Objects(t, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
			object := kcptest.Parse(t, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {generateName: x-, labels: {bomb: %s}}}`, name))
			within(t, name, func() {
				kcptest.Eventually(t, "the webhook is called", func(ctx contextType) error {
					_, err := objects.Create(ctx, object.DeepCopy(), metav1.CreateOptions{})
					if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), want) || (path != "copies" && !strings.Contains(err.Error(), name+".example.com")) {
						return fmt.Errorf("got %v", err)
					}
					return nil
				})
			})
		}
	}

	for name, want := range map[string]string{"packed": `Content-Encoding "gzip"`, "plains": "the response has more than"} {
		c.Apply(t, fmt.Sprintf(converted, name, fmt.Sprintf("{url: %q, caBundle: %q}", host.URL+"/"+name, base64Of(ca))))
		c.WaitForDefinition(t, name+".example.com")
		in := func(version string) schema.GroupVersionResource {
			return schema.GroupVersionResource{Group: "example.com", Version: version, Resource: name}
		}
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "K" + name, "metadata": map[string]any{"name": "one"}}}
		if _, err := c.Objects(t, in("v1")).Create(kcptest.Context(t), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		within(t, "conversion of "+name, func() {
			if _, err := c.Objects(t, in("v2")).Get(kcptest.Context(t), "one", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}

	issuer := &kcptest.Issuer{Server: host}
	org := environment.server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("bombs-"+kcptest.Suffix(), "", ""))
	org.Apply(t, issuer.TrustedBy("tenanted", ca))
	team := org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("team", "", "tenanted"))
	token, err := environment.first.Token(issuer.Claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	asked.Store(0)
	within(t, "discovery", func() {
		for range 20 {
			_, err := whoIs(t, team, token)
			kcptest.WantReason(t, err, metav1.StatusReasonUnauthorized)
		}
	})
	if n := asked.Load(); n < 1 || n > 10 {
		t.Errorf("the discovery document was fetched %d times for 20 tokens", n)
	}
}

// The error for a webhook that cannot be reached has the cause, and no details of the network around the server.
func TestWebhookErrorsHaveNoNetworkDetails(t *testing.T) {
	c := environment.server.Cluster(t)
	port, err := kcptest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	resets := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(resets.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: resets.Certificate().Raw})
	for name, test := range map[string]struct{ host, want string }{
		"missing": {"hooks.invalid", "calling hooks.invalid: "},
		"closed":  {fmt.Sprintf("localhost:%d", port), fmt.Sprintf("calling localhost:%d: dial: connection refused", port)},
		"resets":  {resets.Listener.Addr().String(), "calling " + resets.Listener.Addr().String() + ": "},
	} {
		c.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: %[1]s.example.com
  clientConfig: {url: "https://%[2]s/", caBundle: %[3]q}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
  objectSelector: {matchLabels: {hook: %[1]s}}
  sideEffects: None
  failurePolicy: Fail
  admissionReviewVersions: [v1]
`, name, test.host, base64Of(ca)))
		objects := c.Objects(t, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
		object := kcptest.Parse(t, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {generateName: x-, labels: {hook: %s}}}`, name))
		kcptest.Eventually(t, "the webhook is called", func(ctx contextType) error {
			_, err := objects.Create(ctx, object.DeepCopy(), metav1.CreateOptions{})
			if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "->") || strings.Contains(err.Error(), ":53") ||
				strings.Contains(strings.ReplaceAll(err.Error(), test.host, ""), "127.0.0.1") {
				return fmt.Errorf("got %v", err)
			}
			return nil
		})
	}
}

func base64Of(content []byte) string { return base64.StdEncoding.EncodeToString(content) }
