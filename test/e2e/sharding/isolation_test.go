package sharding

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// holder is who holds a certificate.
type holder struct {
	t      *testing.T
	client *http.Client
}

// as returns a client with a certificate.
func as(t *testing.T, certificate sharded.Certificate) holder {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certificate.Cert, certificate.Key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{
		RootCAs: installation.PKI.Serving.Pool(),
		// A thief presents the certificate to every server, also to one that does not request it.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return holder{t, &http.Client{Transport: transport}}
}

// peer returns a client with the certificate of a peer.
func peer(t *testing.T, kind, name string) holder {
	t.Helper()
	certificate, err := installation.PKI.Peer(kind, name)
	if err != nil {
		t.Fatal(err)
	}
	return as(t, certificate)
}

// send sends a request, and returns the code and the body of the response.
func (h holder) send(method, url, body string, header http.Header) (int, string) {
	h.t.Helper()
	request, err := http.NewRequestWithContext(kcptest.Context(h.t), method, url, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := h.client.Do(request)
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// wantCode fails the test if a request does not get this code.
func (h holder) wantCode(want int, method, url, body string, header http.Header) {
	h.t.Helper()
	if code, content := h.send(method, url, body, header); code != want {
		h.t.Errorf("%s %s: got %d, want %d: %.300s", method, url, code, want, content)
	}
}

const (
	calls = "/services/peers/v1/"
	// namespaces is a path that an administrator may read in every workspace, and tenants may not read in root.
	secrets = "/clusters/root/api/v1/secrets"
)

// headers returns identity headers as a front proxy sends them.
func headers(user string, groups ...string) http.Header {
	return http.Header{"X-Remote-User": {user}, "X-Remote-Group": groups}
}

func TestAStolenCertificateOfAShardIsNoUserAndNoOtherShard(t *testing.T) {
	thief := peer(t, sharded.KindShard, "shard-1")
	for _, s := range installation.Shards {
		thief.wantCode(http.StatusUnauthorized, http.MethodGet, s.URL+secrets, "", nil)
		thief.wantCode(http.StatusUnauthorized, http.MethodGet, s.URL+secrets, "", headers("admin", "system:masters"))
		thief.wantCode(http.StatusForbidden, http.MethodPost, s.URL+calls+"shards.state", `{}`, nil)
		thief.wantCode(http.StatusNotFound, http.MethodPost, s.URL+calls+"absent", `{}`, nil)
	}
	// A shard can register itself alone, and not with another store.
	registration := `{"baseURL": "https://127.0.0.1:1", "incarnation": "other"}`
	thief.wantCode(http.StatusConflict, http.MethodPost, installation.Root().URL+calls+"shards.register", registration, nil)
}

func TestAStolenCertificateOfAProxyIsNeverAnAdministrator(t *testing.T) {
	thief := peer(t, sharded.KindProxy, "proxy-1")
	thief.wantCode(http.StatusForbidden, http.MethodPost, installation.Root().URL+calls+"shards.register", `{}`, nil)
	for _, s := range installation.Shards {
		thief.wantCode(http.StatusForbidden, http.MethodPost, s.URL+calls+"shards.state", `{}`, nil)
		for _, group := range []string{
			"system:masters", "system:kcp:admin", "system:kcp:external-logical-cluster-admin", "system:kcp:logical-cluster-admin",
		} {
			thief.wantCode(http.StatusForbidden, http.MethodGet, s.URL+secrets, "", headers("mallory", "system:authenticated", group))
		}
	}
}

func TestIdentityHeadersCountOnlyFromProxiesThatAreNamed(t *testing.T) {
	root := installation.Root().URL
	named := peer(t, sharded.KindProxy, "proxy-1")
	reviews, review := root+"/clusters/root/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	asUser := headers("alice", "system:authenticated")
	asUser.Set("Content-Type", "application/json")
	if code, body := named.send(http.MethodPost, reviews, review, asUser); code != http.StatusCreated || !strings.Contains(body, `"username":"alice"`) {
		t.Errorf("a named proxy acts for alice: got %d %s", code, body)
	}
	for name, h := range map[string]holder{
		"a proxy that is not named": peer(t, sharded.KindProxy, "other"),
		"a shard":                   peer(t, sharded.KindShard, "shard-2"),
	} {
		if code, body := h.send(http.MethodPost, reviews, review, asUser); code < 400 && strings.Contains(body, "alice") {
			t.Errorf("%s acts for alice: got %d %s", name, code, body)
		}
	}
}
