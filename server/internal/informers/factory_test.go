package informers

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// While a logical cluster arrives, lists of all clusters are refused for a few milliseconds, with a time in seconds after which clients
// should try again.
func TestARefusedListIsRepeatedAtOnce(t *testing.T) {
	requests := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		select {
		case requests <- r.URL.Path + " " + r.URL.Query().Get("watch"):
		default:
		}
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	informer, err := NewFactory(&rest.Config{Host: server.URL}, scheme).For(Kind{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Example: &corev1.ConfigMap{},
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	go informer.Run(t.Context())
	for range 4 {
		if got, want := <-requests, "/clusters/*/api/v1/configmaps "; got != want {
			t.Errorf("got the request %q, want %q", got, want)
		}
	}
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("four lists took %s", took)
	}
}
