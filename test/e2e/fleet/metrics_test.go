package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// metrics returns the metrics of the controller as a user with a token sees them.
func (f *fleet) metrics(ctx context.Context, token string) (int, string, error) {
	ca, err := os.ReadFile(f.caFile())
	if err != nil {
		return 0, "", err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// servesMetrics checks who reads the metrics of the controller.
func (f *fleet) servesMetrics(t *testing.T) {
	kube := f.provider.Kube(t, kcptest.Masters)
	kcptest.Eventually(t, "the metrics count the clusters", func(ctx context.Context) error {
		code, body, err := f.metrics(ctx, tokenOf(t, kube, "kcp-fleet", "metrics"))
		if err == nil && !strings.Contains(body, `kcp_fleet_clusters{ready="true"} 2`) {
			err = fmt.Errorf("got %d %s", code, body[:min(len(body), 300)])
		}
		return err
	})
	f.provider.Kubectl(t, "create", "serviceaccount", "other", "--namespace=kcp-fleet")
	w := f.server.Cluster(t)
	w.Kubectl(t, "create", "serviceaccount", "metrics", "--namespace=default")
	w.Kubectl(t, "create", "clusterrolebinding", "metrics", "--clusterrole=cluster-admin", "--serviceaccount=default:metrics")
	for name, token := range map[string]string{
		"without a token":                          "",
		"with a token without the permission":      tokenOf(t, kube, "kcp-fleet", "other"),
		"as an administrator of another workspace": tokenOf(t, w.Kube(t, kcptest.Masters), "default", "metrics"),
	} {
		code, body, err := f.metrics(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		if (code != http.StatusForbidden && code != http.StatusUnauthorized) || strings.Contains(body, "kcp_fleet_clusters") {
			t.Errorf("%s: got %d %s", name, code, body[:min(len(body), 300)])
		}
	}
}
