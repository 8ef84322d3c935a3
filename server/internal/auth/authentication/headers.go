package authentication

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
)

// WithoutPrivilegedHeaders removes from identity headers what no front proxy can state, whatever its configuration is: groups of
// administrators, initializers and terminators, and warrants. inner reads the headers, and decides which certificates may send them. Who steals
// the certificate of a front proxy can act as any tenant, and never as an administrator.
func WithoutPrivilegedHeaders(inner authenticator.Request, names *authenticatorfactory.RequestHeaderConfig) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		for _, name := range names.GroupHeaders.Value() {
			name = http.CanonicalHeaderKey(name)
			if groups, ok := r.Header[name]; ok {
				r.Header[name] = slices.DeleteFunc(authorization.Unguarded(groups), isLifecycleGroup)
			}
		}
		for name := range r.Header {
			if isWarrantHeader(name, names.ExtraHeaderPrefixes.Value()) {
				delete(r.Header, name) // as it is spelled
			}
		}
		return inner.AuthenticateRequest(r)
	})
}

// isLifecycleGroup reports whether the members of a group are the controllers of initializers or terminators.
func isLifecycleGroup(group string) bool {
	return strings.HasPrefix(group, "system:kcp:initializer:") || strings.HasPrefix(group, "system:kcp:terminator:")
}

// isWarrantHeader reports whether a header states a warrant. Upstream decodes the key of an extra value in the same way.
func isWarrantHeader(name string, prefixes []string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		key, ok := strings.CutPrefix(name, strings.ToLower(prefix))
		if !ok {
			return false
		}
		if decoded, err := url.PathUnescape(key); err == nil {
			key = decoded
		}
		return key == authorization.WarrantKey
	})
}
