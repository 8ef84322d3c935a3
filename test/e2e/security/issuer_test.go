package security

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// issuer is an OpenID Connect provider.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func newIssuer(ca *authority, dir, name string) (*issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	i := &issuer{key: key}
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
	if i.TLS, err = ca.tlsConfig(dir, name); err != nil {
		return nil, err
	}
	i.StartTLS()
	return i, nil
}

// claims of a valid token, with some replaced.
func (i *issuer) claims(replaced map[string]any) map[string]any {
	claims := map[string]any{
		"iss": i.URL, "aud": "kcp", "sub": "jane", "groups": []string{"developers"},
		"iat": time.Now().Unix(), "nbf": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	for key, value := range replaced {
		claims[key] = value
	}
	return claims
}

func (i *issuer) token(claims map[string]any) (string, error) { return sign(i.key, claims) }

func sign(key *ecdsa.PrivateKey, claims map[string]any) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}, nil)
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}
