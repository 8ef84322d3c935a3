package authentication

import (
	"crypto/x509"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// lifecyclePrefixes begin the groups that the server gives to the controllers of a workspace type.
var lifecyclePrefixes = []string{"system:kcp:initializer:", "system:kcp:terminator:"}

// FromProxies limits what inner reads from the headers in which a front proxy describes a user: no groups that administer the
// installation, no groups of initializers and terminators, and no warrants, even if the configuration of the proxy passes them on. A
// certificate of another peer, such as a shard, describes no users. headers is nil if the server accepts no such headers.
func FromProxies(inner authenticator.Request, headers *authenticatorfactory.RequestHeaderConfig) authenticator.Request {
	if headers == nil {
		return inner
	}
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if isOtherPeer(r) {
			headerrequest.ClearAuthenticationHeaders(r.Header, headers.UsernameHeaders, headers.UIDHeaders, headers.GroupHeaders,
				headers.ExtraHeaderPrefixes)
		}
		for _, name := range headers.GroupHeaders.Value() {
			limitGroups(r.Header, http.CanonicalHeaderKey(name))
		}
		for _, prefix := range headers.ExtraHeaderPrefixes.Value() {
			limitExtra(r.Header, prefix)
		}
		if isProxy(r) && !describes(r.Header, headers) {
			r = withoutCertificate(r)
		}
		return inner.AuthenticateRequest(r)
	})
}

// Stated authenticates the users that front proxies describe in headers, as upstream does, but verifies the certificate of a connection
// once. It has no opinion on other requests, nor on certificates that are not valid. FromProxies must limit the headers before.
func Stated(headers *authenticatorfactory.RequestHeaderConfig, proxies *peers.Verifier,
	audiences authenticator.Audiences) authenticator.Request {
	described := authenticator.WrapAudienceAgnosticRequest(audiences, headerrequest.NewDynamic(
		headers.UsernameHeaders, headers.UIDHeaders, headers.GroupHeaders, headers.ExtraHeaderPrefixes))
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if r.TLS == nil || proxies.Verify(r.TLS.PeerCertificates) != nil || !named(headers, r) {
			return nil, false, nil
		}
		return described.AuthenticateRequest(r)
	})
}

// Forwarded lets certificates, which authenticates client certificates of logical clusters, also authenticate those that a front proxy
// forwards. No other authenticator sees them: a front proxy can forward the certificate of any user, but not prove that this user sent it.
// Only the shard that holds the logical cluster of a certificate can verify it. On others the user is anonymous, as in other workspaces of
// this shard.
func Forwarded(certificates authenticator.Request, headers *authenticatorfactory.RequestHeaderConfig, proxies *peers.Verifier,
	holds func(logicalcluster.Name) bool) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		value := r.Header.Get(clientcertificates.Header)
		r.Header.Del(clientcertificates.Header)
		if value == "" || !isProxy(r) || proxies.Verify(r.TLS.PeerCertificates) != nil || !named(headers, r) {
			return certificates.AuthenticateRequest(r)
		}
		certificate, err := clientcertificates.Parse(value)
		if err != nil {
			return nil, false, err
		}
		if cluster := clientcertificates.ClusterOf(certificate); cluster != "" && !holds(cluster) {
			return nil, false, nil
		}
		forwarded, connection := *r, *r.TLS
		connection.PeerCertificates, connection.VerifiedChains = []*x509.Certificate{certificate}, nil
		forwarded.TLS = &connection
		return certificates.AuthenticateRequest(&forwarded)
	})
}

// named reports whether the common name of a valid certificate is that of a front proxy. Without names, all are.
func named(headers *authenticatorfactory.RequestHeaderConfig, r *http.Request) bool {
	names := headers.AllowedClientNames.Value()
	return len(names) == 0 || slices.Contains(names, r.TLS.PeerCertificates[0].Subject.CommonName)
}

// describes reports whether headers describe a user.
func describes(h http.Header, headers *authenticatorfactory.RequestHeaderConfig) bool {
	return slices.ContainsFunc(headers.UsernameHeaders.Value(), func(name string) bool { return h.Get(name) != "" })
}

// withoutCertificate returns a request without its client certificate, which is that of a front proxy: it is not the certificate of a user,
// who may have a token, or be anonymous.
func withoutCertificate(r *http.Request) *http.Request {
	plain, connection := *r, *r.TLS
	connection.PeerCertificates, connection.VerifiedChains = nil, nil
	plain.TLS = &connection
	return &plain
}

// isOtherPeer reports whether the client has the certificate of a peer that is not a front proxy.
func isOtherPeer(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && peers.IsPeer(r.TLS.PeerCertificates[0]) && !isProxy(r)
}

// isProxy reports whether the client has the certificate of a front proxy, signed by any authority.
func isProxy(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	identity, err := peers.IdentityOf(r.TLS.PeerCertificates[0])
	return err == nil && identity.Kind == peers.Proxy
}

func limitGroups(h http.Header, name string) {
	if groups, ok := h[name]; ok {
		h[name] = slices.DeleteFunc(authorization.Unguarded(groups), func(group string) bool {
			return slices.ContainsFunc(lifecyclePrefixes, func(prefix string) bool { return strings.HasPrefix(group, prefix) })
		})
	}
}

// limitExtra removes the extra values with keys of kcp, but for those that limit a user to logical clusters.
func limitExtra(h http.Header, prefix string) {
	for name := range h {
		if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
			continue
		}
		key := strings.ToLower(name[len(prefix):]) // as upstream reads it
		if unescaped, err := url.PathUnescape(key); err == nil {
			key = unescaped
		}
		if strings.Contains(strings.ToLower(key), "kcp.io") && key != authorization.ScopesKey && key != logicalcluster.UserExtraKey {
			delete(h, name)
		}
	}
}
