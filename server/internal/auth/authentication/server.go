package authentication

import (
	"crypto/subtle"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kcplane/kcp/server/internal/apis/derived"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
)

// WithServer recognises the requests of the server itself by the token that its own clients send, for authorization.IsServer.
// They see stored objects only: the controllers that empty a namespace or a cluster cannot delete derived ones. A request that impersonates
// a user belongs to that user instead. It must run before everything that removes or changes credentials.
func WithServer(next http.Handler, token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if bears(r, token) && len(r.Header.Values(authenticationv1.ImpersonateUserHeader)) == 0 {
			r = r.WithContext(derived.StoredOnly(authorization.AsServer(r.Context())))
		}
		next.ServeHTTP(w, r)
	})
}

func bears(r *http.Request, token string) bool {
	sent, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && token != "" && subtle.ConstantTimeCompare([]byte(sent), []byte(token)) == 1
}
