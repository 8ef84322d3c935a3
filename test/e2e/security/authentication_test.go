package security

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// authenticationConfiguration trusts two issuers and maps their users differently. It is a format with the URL and the certificate of
// each.
const authenticationConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %s
    audiences: [kcp]
    certificateAuthority: |
%s
  claimMappings:
    username: {claim: sub, prefix: "first:"}
    groups: {claim: groups, prefix: "first:"}
- issuer:
    url: %s
    audiences: [kcp]
    certificateAuthority: |
%s
  claimValidationRules:
  - {expression: "claims.hd == 'example.com'", message: "the domain must be example.com"}
  claimMappings:
    username: {expression: "claims.sub + '@' + claims.hd"}
    groups: {expression: "dyn(claims.groups).map(g, 'second:' + string(g))"}
  userValidationRules:
  - {expression: "!user.username.startsWith('system:')", message: "reserved"}
`

func indent(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}

func TestTokensOfConfiguredIssuersAreAccepted(t *testing.T) {
	e := &environment
	for what, c := range map[string]struct {
		issuer *kcptest.Issuer
		claims map[string]any
		name   string
		group  string
	}{
		"prefixed claims":    {e.first, nil, "first:jane", "first:developers"},
		"mapped expressions": {e.other, map[string]any{"hd": "example.com"}, "jane@example.com", "second:developers"},
	} {
		t.Run(what, func(t *testing.T) {
			token, err := c.issuer.Token(c.issuer.Claims(c.claims))
			if err != nil {
				t.Fatal(err)
			}
			var who authenticationv1.UserInfo
			kcptest.Eventually(t, "the token is accepted", func(_ contextType) error {
				who, err = whoIs(t, e.server.Named("root"), token)
				return err
			})
			if who.Username != c.name || !slices.Contains(who.Groups, c.group) || !slices.Contains(who.Groups, "system:authenticated") {
				t.Errorf("got user %+v", who)
			}
		})
	}
}

func TestInvalidTokensAreRefused(t *testing.T) {
	e := &environment
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good, err := e.first.Token(e.first.Claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the token is accepted", func(_ contextType) error {
		_, err := whoIs(t, e.server.Named("root"), good)
		return err
	})
	unsigned := func(claims map[string]any) string {
		content, _ := json.Marshal(claims)
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(content) + "."
	}
	tokens := map[string]func() (string, error){
		"for another audience": func() (string, error) { return e.first.Token(e.first.Claims(map[string]any{"aud": "other"})) },
		"expired": func() (string, error) {
			return e.first.Token(e.first.Claims(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}))
		},
		"not valid yet": func() (string, error) {
			return e.first.Token(e.first.Claims(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}))
		},
		"of an unknown issuer": func() (string, error) {
			return e.first.Token(e.first.Claims(map[string]any{"iss": "https://other.test"}))
		},
		"with the issuer of another token":      func() (string, error) { return e.first.Token(e.other.Claims(map[string]any{"hd": "example.com"})) },
		"signed with an unknown key":            func() (string, error) { return kcptest.SignToken(own, e.first.Claims(nil)) },
		"not signed":                            func() (string, error) { return unsigned(e.first.Claims(nil)), nil },
		"that violates a claim validation rule": func() (string, error) { return e.other.Token(e.other.Claims(map[string]any{"hd": "evil.test"})) },
		"with a reserved user name": func() (string, error) {
			return e.other.Token(e.other.Claims(map[string]any{"hd": "example.com", "sub": "system:x"}))
		},
		"modified after signing": func() (string, error) { return good[:len(good)-4] + "AAAA", nil },
	}
	for what, make := range tokens {
		t.Run(what, func(t *testing.T) {
			token, err := make()
			if err != nil {
				t.Fatal(err)
			}
			_, err = whoIs(t, e.server.Named("root"), token)
			kcptest.WantReason(t, err, metav1.StatusReasonUnauthorized)
			if err != nil && (strings.Contains(err.Error(), e.first.URL) || strings.Contains(err.Error(), token)) {
				t.Errorf("the error contains details: %v", err)
			}
		})
	}
}

// asProxy sends identity headers with a client certificate of that name, or without one, and returns the response.
func asProxy(t *testing.T, a *kcptest.Authority, name string, headers map[string]string) (int, authenticationv1.UserInfo) {
	t.Helper()
	e := &environment
	config := &tls.Config{InsecureSkipVerify: true}
	if a != nil {
		var err error
		certFile, keyFile, err := a.Issue(t.TempDir(), name)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.server.URL+"/clusters/root/apis/authentication.k8s.io/v1/selfsubjectreviews",
		bytes.NewReader([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for key, value := range headers {
		request.Header.Set(key, value)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	review := &authenticationv1.SelfSubjectReview{}
	if response.StatusCode == http.StatusCreated {
		if err := json.Unmarshal(content, review); err != nil {
			t.Fatal(err)
		}
	}
	return response.StatusCode, review.Status.UserInfo
}

func TestIdentityHeadersAreAcceptedOnlyFromFrontProxy(t *testing.T) {
	e := &environment
	headers := map[string]string{
		"X-Remote-User": "carol", "X-Remote-Group": "auditors",
		"X-Remote-Extra-Authentication.kcp.io%2fscopes": "cluster:somewhere",
	}
	code, who := asProxy(t, e.ca, "front-proxy", headers)
	if code != http.StatusCreated || who.Username != "carol" || !slices.Contains(who.Groups, "auditors") {
		t.Errorf("from the front proxy: %d, %+v", code, who)
	}
	if got := who.Extra["authentication.kcp.io/scopes"]; !slices.Equal(got, []string{"cluster:somewhere"}) {
		t.Errorf("from the front proxy: the scopes are %v", got)
	}
	for what, c := range map[string]struct {
		ca   *kcptest.Authority
		name string
	}{
		"without a certificate":                {nil, ""},
		"with a certificate of another CA":     {e.stranger, "front-proxy"},
		"with a certificate with another name": {e.ca, "other"},
	} {
		if code, who := asProxy(t, c.ca, c.name, headers); code == http.StatusCreated && who.Username != "system:anonymous" || who.Username == "carol" {
			t.Errorf("%s: %d, %+v", what, code, who)
		}
	}
}

func TestOIDCFlagsWorkWithoutAConfigurationFile(t *testing.T) {
	e := &environment
	server := kcptest.StartIn(t, t.TempDir(), "--oidc-issuer-url="+e.first.URL, "--oidc-client-id=kcp", "--oidc-ca-file="+e.ca.File,
		"--oidc-username-claim=sub", "--oidc-username-prefix=oidc:", "--oidc-groups-claim=groups", "--oidc-groups-prefix=oidc:", "--oidc-signing-algs=ES256")
	token, err := e.first.Token(e.first.Claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the token is accepted", func(_ contextType) error {
		who, err := whoIs(t, server.Named("root"), token)
		if err == nil && (who.Username != "oidc:jane" || !slices.Contains(who.Groups, "oidc:developers")) {
			t.Fatalf("got user %+v", who)
		}
		return err
	})
	foreign, err := e.other.Token(e.other.Claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	_, err = whoIs(t, server.Named("root"), foreign)
	kcptest.WantReason(t, err, metav1.StatusReasonUnauthorized)
}

func TestConfiguredServingCertificatesAreUsed(t *testing.T) {
	e := &environment
	certFile, keyFile, err := e.ca.Issue(t.TempDir(), "kcp-serving")
	if err != nil {
		t.Fatal(err)
	}
	server := kcptest.StartIn(t, t.TempDir(), "--tls-cert-file="+certFile, "--tls-private-key-file="+keyFile)
	connection, err := tls.Dial("tcp", strings.TrimPrefix(server.URL, "https://"), &tls.Config{RootCAs: e.ca.Pool(), ServerName: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if name := connection.ConnectionState().PeerCertificates[0].Subject.CommonName; name != "kcp-serving" {
		t.Errorf("got the certificate of %q", name)
	}
}

func TestUntrustedEtcdCertificateIsRefused(t *testing.T) {
	e := &environment
	dir := t.TempDir()
	certFile, keyFile, err := e.ca.Issue(dir, "client")
	if err != nil {
		t.Fatal(err)
	}
	server, err := kcptest.Start(dir, "--etcd-servers="+e.etcdURL, "--etcd-cafile="+e.stranger.File, "--etcd-certfile="+certFile, "--etcd-keyfile="+keyFile)
	if err == nil {
		server.Kill()
		t.Fatal("the server started")
	}
	log, readErr := os.ReadFile(dir + "/kcp.log")
	if readErr != nil || !strings.Contains(string(log), "etcd") || !strings.Contains(string(log), "certificate") {
		t.Errorf("the error does not mention the certificate of etcd: %v", err)
	}
}
