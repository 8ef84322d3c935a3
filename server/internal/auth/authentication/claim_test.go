package authentication

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestTheClusterThatATokenClaims(t *testing.T) {
	for token, want := range map[string]logicalcluster.Name{
		unsigned(`{"kubernetes.io":{"clusterName":"a"}}`):                                                   "a",
		unsigned(`{"kubernetes.io":{"clusterName":"system:admin"}}`):                                        "system:admin",
		unsigned(`{"kubernetes.io/serviceaccount/clusterName":"a"}`):                                        "a",
		unsigned(`{"kubernetes.io":{"clusterName":"*"}}`):                                                   "",
		unsigned(`{"kubernetes.io":{"clusterName":"a/../b"}}`):                                              "",
		unsigned(`{"kubernetes.io":{"clusterName":["a"]}}`):                                                 "",
		unsigned(`{"kubernetes.io":"a"}`):                                                                   "",
		unsigned(`{}`):                                                                                      "",
		unsigned(`{"kubernetes.io":{"clusterName":"` + strings.Repeat("a", 1000) + `"}}`):                   "",
		unsigned(`{"x":"` + strings.Repeat("a", maxTokenLength) + `","kubernetes.io":{"clusterName":"a"}}`): "",
		"":      "",
		"..":    "",
		"a.b":   "",
		"a.%.b": "",
	} {
		if got := ClaimedCluster(token); got != want {
			t.Errorf("%.80s: got %q, want %q", token, got, want)
		}
	}
}

// recorder records the private claims that it must sign.
type recorder struct{ private any }

func (r *recorder) GenerateToken(_ context.Context, _ *jwt.Claims, private any) (string, error) {
	r.private = private
	return "signed", nil
}

func TestTokensInBothFormatsHaveTheirCluster(t *testing.T) {
	_, legacy := serviceaccount.LegacyClaims(corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bot"}}, corev1.Secret{})
	for name, private := range map[string]any{"of a secret": legacy, "requested": map[string]any{"kubernetes.io": map[string]any{"namespace": "ns"}}, "empty": nil} {
		r := &recorder{}
		if _, err := (Generator{TokenGenerator: r}).GenerateToken(logicalcluster.WithName(context.Background(), "a"), &jwt.Claims{}, private); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		encoded, err := json.Marshal(r.private)
		if err != nil {
			t.Fatal(err)
		}
		if got := ClaimedCluster(unsigned(string(encoded))); got != "a" {
			t.Errorf("%s: %s claims %q", name, encoded, got)
		}
	}
	if _, err := (Generator{TokenGenerator: &recorder{}}).GenerateToken(context.Background(), &jwt.Claims{}, nil); err == nil {
		t.Error("a token without a cluster is signed")
	}
}

func TestRequestsOfServiceAccountsAreRoutedToTheirCluster(t *testing.T) {
	token := unsigned(`{"kubernetes.io":{"clusterName":"a"}}`)
	for _, c := range []struct{ path, token, want string }{
		{"/api/v1/pods?watch=1", token, "/clusters/a/api/v1/pods?watch=1"},
		{"/apis", token, "/clusters/a/apis"},
		{"/api/a%20b", token, "/clusters/a/api/a%20b"},
		{"/clusters/b/api", token, "/clusters/b/api"},
		{"/services/x", token, "/services/x"},
		{"/healthz", token, "/healthz"},
		{"/version", token, "/version"},
		{"/api", "", "/api"},
		{"/api", "opaque", "/api"},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		var got *http.Request
		WithInClusterServiceAccount(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r })).ServeHTTP(nil, r)
		if got.URL.RequestURI() != c.want || got.RequestURI != c.want {
			t.Errorf("%s is routed to %s (%s), want %s", c.path, got.URL.RequestURI(), got.RequestURI, c.want)
		}
	}
}

func FuzzClaimedClusters(f *testing.F) {
	f.Add(unsigned(`{"kubernetes.io":{"clusterName":"a"}}`), "Bearer x", "v1")
	f.Add("..", "bearer", protocolPrefix+"YQ")
	f.Fuzz(func(t *testing.T, token, header, protocol string) {
		if name := ClaimedCluster(token); name != "" && !logicalcluster.ValidPath(string(name)) {
			t.Errorf("claims %q", name)
		}
		if name := ClaimedCluster(unsigned(token)); name != "" && !strings.Contains(strings.ToLower(token), "clustername") {
			t.Errorf("%q claims %q", token, name)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["Authorization"] = []string{header}
		r.Header["Sec-Websocket-Protocol"] = []string{protocol}
		r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
		for _, token := range bearerTokens(r) {
			if token == "" {
				t.Error("an empty token")
			}
		}
	})
}
