package authentication

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
)

func TestTheServerIsIdentifiedOnlyByItsToken(t *testing.T) {
	const token = "token-of-the-server"
	for _, c := range []struct {
		name, token string
		headers     []string
		want        bool
	}{
		{"its token", token, []string{"Authorization", "Bearer " + token}, true},
		{"no token", token, nil, false},
		{"the token of a user", token, []string{"Authorization", "Bearer token-of-a-user"}, false},
		{"its token without the scheme", token, []string{"Authorization", token}, false},
		{"its token and more", token, []string{"Authorization", "Bearer " + token + "x"}, false},
		{"an empty token, of a server without one", "", []string{"Authorization", "Bearer "}, false},
		{"its name, impersonated", token, []string{"Authorization", "Bearer token-of-a-user", "Impersonate-User", "system:apiserver"}, false},
		{"its token, to impersonate a user", token, []string{"Authorization", "Bearer " + token, "Impersonate-User", "alice"}, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Set(c.headers[i], c.headers[i+1])
		}
		got := false
		WithServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = authorization.IsServer(r.Context()) }), c.token).
			ServeHTTP(httptest.NewRecorder(), r)
		if got != c.want {
			t.Errorf("%s: is the server itself: %t, want %t", c.name, got, c.want)
		}
	}
}
