package apisharing

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestWebhooksOfProviderAreCalledForBoundResources(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	bind(t, consumer, p)
	var mu sync.Mutex
	var called []string
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		called = append(called, r.URL.Path+" "+review.Request.Resource.Resource)
		mu.Unlock()
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer hook.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	for name, c := range map[string]*kcptest.Cluster{"provider": p, "consumer": consumer} {
		for _, kind := range []string{"Mutating", "Validating"} {
			c.Apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]sWebhookConfiguration
metadata: {name: all}
webhooks:
- name: all.example.org
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "%[2]s/%[3]s/%[1]s", caBundle: %[4]s}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [widgets, configmaps]}]
`, kind, hook.URL, name, ca))
		}
	}
	if _, err := consumer.Objects(t, widgets).Namespace("default").Create(ctx, widget("one", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := view(t, kcptest.Masters, p, consumer.Name).Resource(widgets).Namespace("default").Create(ctx, widget("two", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := consumer.Objects(t, configMaps).Namespace("default").Create(ctx, configMap("one", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{
		"/provider/Mutating widgets", "/provider/Validating widgets", "/provider/Mutating widgets", "/provider/Validating widgets",
		"/consumer/Mutating configmaps", "/consumer/Validating configmaps",
	}
	if !slices.Equal(called, want) {
		t.Errorf("got calls %v, want %v", called, want)
	}
}
