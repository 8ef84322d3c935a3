package objectlimit

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// metric returns the sum of the values of a metric whose labels match a regular expression.
func metric(t *testing.T, c *kcptest.Cluster, name, labels string) float64 {
	t.Helper()
	config := c.Config(kcptest.Masters)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	base, _, _ := strings.Cut(config.Host, "/clusters/")
	response, err := client.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content := new(strings.Builder)
	if err := response.Write(content); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("metrics: %s %v", response.Status, err)
	}
	sum := 0.0
	for _, found := range regexp.MustCompile(`(?m)^`+name+labels+` (\S+)\s*$`).FindAllStringSubmatch(content.String(), -1) {
		value, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return sum
}

func contentMap(name, content string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"content": content}}
}

// serves checks that a tenant can write and read normally.
func serves(t *testing.T, c *kcptest.Cluster, user kcptest.User) {
	t.Helper()
	client := once(t, c, user).CoreV1().ConfigMaps("default")
	for i := range 16 {
		name := fmt.Sprintf("one-%d-%s", i, kcptest.Suffix())
		if _, err := client.Create(t.Context(), contentMap(name, strings.Repeat("x", 64<<10)), metav1.CreateOptions{}); err != nil {
			t.Errorf("creating %s as another tenant: %v", name, err)
		}
		if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("reading %s as another tenant: %v", name, err)
		}
	}
	if _, err := client.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("listing as another tenant: %v", err)
	}
}

func TestHangingWebhooksOnlyUseShareOfTheirOwner(t *testing.T) {
	t.Parallel()
	server := kcptest.StartIn(t, t.TempDir(), "--max-mutating-requests-inflight=100", "--logical-cluster-max-requests-inflight=60")
	neighbour := server.Organization(t, kcptest.Bob)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	hangs := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ctx.Done():
		}
	}))
	defer hangs.Close()
	defer end()
	url, sideEffects := hangs.URL, admissionregistrationv1.SideEffectClassNone
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hangs.Certificate().Raw})
	refused := make(chan error, 5*60)
	for range 5 {
		c := server.Organization(t, kcptest.Alice)
		_, err := c.Kube(t, kcptest.Alice).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "hangs"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "hangs.example.com", SideEffects: &sideEffects, AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		client := once(t, c, kcptest.Alice).CoreV1().ConfigMaps("default")
		kcptest.Eventually(t, "the webhook is called", func(ctx context.Context) error {
			seconds := metric(t, c, "kcp_requests_waiting_for_hosts", "")
			go func() {
				_, err := client.Create(ctx, contentMap("try-"+kcptest.Suffix(), ""), metav1.CreateOptions{})
				refused <- err
			}()
			if seconds == 0 {
				return fmt.Errorf("no request waits")
			}
			return nil
		})
		for i := range 60 {
			go func() {
				_, err := client.Create(ctx, contentMap(fmt.Sprintf("hangs-%d", i), ""), metav1.CreateOptions{})
				refused <- err
			}()
		}
	}
	kcptest.Eventually(t, "their owner has reached its share", func(context.Context) error {
		select {
		case err := <-refused:
			if !apierrors.IsTooManyRequests(err) {
				return fmt.Errorf("got %v", err)
			}
			return nil
		default:
			return fmt.Errorf("no request is refused")
		}
	})
	serves(t, neighbour, kcptest.Bob)
	if n := metric(t, neighbour, "kcp_requests_waiting_for_hosts", ""); n < 20 {
		t.Errorf("got %v requests waiting for the webhooks", n)
	}
}

func TestUnreadResponsesOnlyUseMemoryShareOfTheirTenant(t *testing.T) {
	t.Parallel()
	const memory = 64 << 20
	server := kcptest.StartIn(t, t.TempDir(), fmt.Sprintf("--max-request-memory-bytes=%d", memory))
	ours, theirs := server.Organization(t, kcptest.Alice), server.Organization(t, kcptest.Bob)
	for i := range 12 {
		if _, err := ours.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Create(t.Context(), contentMap(fmt.Sprintf("large-%d", i), strings.Repeat("x", 500<<10)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	client, err := rest.HTTPClientFor(ours.Config(kcptest.Alice))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	codes := make(chan int, 40)
	for range 40 {
		go func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, ours.URL()+"/api/v1/namespaces/default/configmaps", nil)
			if err != nil {
				return
			}
			r.Header.Set("Accept-Encoding", "identity")
			response, err := client.Do(r)
			if err != nil {
				return
			}
			codes <- response.StatusCode
			<-ctx.Done() // without reading the response
			response.Body.Close()
		}()
	}
	kcptest.Eventually(t, "some requests are refused", func(context.Context) error {
		if taken := metric(t, ours, "kcp_requests_memory_bytes", ""); taken > memory {
			t.Errorf("the responses use %v bytes", taken)
		}
		for {
			select {
			case code := <-codes:
				if code == http.StatusTooManyRequests {
					return nil
				}
			default:
				return fmt.Errorf("no request is refused")
			}
		}
	})
	serves(t, theirs, kcptest.Bob)
	if metric(t, ours, "kcp_logicalcluster_refused_requests_total", `\{kind="read",reason="memory"\}`) == 0 {
		t.Error("requests are refused for another reason")
	}
}
