package kcptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer is an OpenID Connect provider.
type Issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

// NewIssuer starts an OpenID Connect provider. If serving is nil, it uses a self-signed certificate.
func NewIssuer(serving *tls.Config) (*Issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	i := &Issuer{key: key}
	mux := http.NewServeMux()
	answer := func(path string, content func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(content())
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize",
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": []string{"ES256"},
		}
	})
	answer("/keys", func() any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}}
	})
	i.Server = httptest.NewUnstartedServer(mux)
	i.TLS = serving
	i.StartTLS()
	return i, nil
}

// Claims returns the claims of a valid token, with some of them replaced.
func (i *Issuer) Claims(replaced map[string]any) map[string]any {
	claims := map[string]any{
		"iss": i.URL, "aud": "kcp", "sub": "jane", "groups": []string{"developers"},
		"iat": time.Now().Unix(), "nbf": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	for key, value := range replaced {
		claims[key] = value
	}
	return claims
}

// Token returns a token with claims.
func (i *Issuer) Token(claims map[string]any) (string, error) { return SignToken(i.key, claims) }

// SignToken returns a token with claims, signed by a key.
func SignToken(key *ecdsa.PrivateKey, claims map[string]any) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}, nil)
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}

// TrustedBy returns manifests of a WorkspaceType that trusts the issuer, whose certificate is signed by ca. The claims sub and groups are
// the user and the groups.
func (i *Issuer) TrustedBy(workspaceType string, ca []byte) string {
	return fmt.Sprintf(`
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceAuthenticationConfiguration
metadata: {name: %[1]s}
spec:
  jwt:
  - issuer: {url: %[2]q, audiences: [kcp], certificateAuthority: %[3]q}
    claimMappings:
      username: {claim: sub, prefix: ""}
      groups: {claim: groups, prefix: ""}
---
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: %[1]s}
spec:
  extend: {with: [{name: universal, path: root}]}
  authenticationConfigurations: [{name: %[1]s}]
`, workspaceType, i.URL, ca)
}

// CA returns the certificate of an issuer that was started without one.
func (i *Issuer) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw})
}
