package authentication

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// errNoCluster refuses a token that could be used in every cluster.
var errNoCluster = errors.New("the service account token names no logical cluster; request a new one")

// errForeign refuses a review of a token in a cluster that it is not from.
var errForeign = errors.New("the token is of a service account of another logical cluster")

// Wrap makes inner check service account tokens against the logical cluster that they were issued in, and tells the
// steps behind it which one that is. Identities from elsewhere cannot claim to be of a cluster.
func Wrap(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		claimed := claimedCluster(bearerToken(r))
		if claimed == "" {
			response, ok, err := inner.AuthenticateRequest(r)
			if !ok || err != nil {
				return response, ok, err
			}
			return checkUnclaimed(response)
		}
		requested := r.Context()
		scoped := r.WithContext(logicalcluster.WithName(requested, claimed))
		response, ok, err := inner.AuthenticateRequest(scoped)
		if !ok || err != nil {
			return response, ok, err
		}
		// Authenticators remove what they have used, so that it reaches nobody else.
		r.Header = scoped.Header
		if !isServiceAccount(response.User) {
			return withExtra(response, nil), true, nil
		}
		return checkClaimed(response, claimed)
	})
}

// checkClaimed handles a service account of a request whose token claims a cluster. The claim counts if the account
// came out of that token, and not out of a certificate or the headers of a front proxy beside it.
func checkClaimed(response *authenticator.Response, claimed logicalcluster.Name) (*authenticator.Response, bool, error) {
	extra := response.User.GetExtra()
	if vouched, ok := extra[authorization.ClusterNameKey]; ok {
		if !slices.Equal(vouched, []string{string(claimed)}) {
			return nil, false, errForeign
		}
		return response, true, nil
	}
	for _, credential := range extra[user.CredentialIDKey] {
		if strings.HasPrefix(credential, "X509") {
			return nil, false, errNoCluster
		}
	}
	return withExtra(response, []string{string(claimed)}), true, nil
}

// checkUnclaimed handles a request whose token, if there is one, names no cluster.
func checkUnclaimed(response *authenticator.Response) (*authenticator.Response, bool, error) {
	if !isServiceAccount(response.User) {
		return withExtra(response, nil), true, nil
	}
	if _, ok := response.User.GetExtra()[authorization.ClusterNameKey]; ok {
		return response, true, nil // vouched for by a front proxy, or by a certificate that the administrator signed
	}
	return nil, false, errNoCluster
}

func isServiceAccount(u user.Info) bool {
	return strings.HasPrefix(u.GetName(), serviceaccount.ServiceAccountUsernamePrefix)
}

// withExtra returns the response with the cluster of its service account set to clusters, or removed if these are none.
func withExtra(response *authenticator.Response, clusters []string) *authenticator.Response {
	extra := maps.Clone(response.User.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	if clusters == nil && len(extra[authorization.ClusterNameKey]) == 0 {
		return response
	}
	delete(extra, authorization.ClusterNameKey)
	if clusters != nil {
		extra[authorization.ClusterNameKey] = clusters
	}
	result := *response
	result.User = &user.DefaultInfo{Name: response.User.GetName(), UID: response.User.GetUID(), Groups: response.User.GetGroups(), Extra: extra}
	return &result
}

// Reviews returns inner for TokenReviews: a token of a service account of another cluster than the review's is not
// authenticated, because its user name means another account there.
func Reviews(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := inner.AuthenticateRequest(r)
		if !ok || err != nil || !isServiceAccount(response.User) {
			return response, ok, err
		}
		cluster, err := logicalcluster.NameFrom(r.Context())
		if err != nil {
			return nil, false, err
		}
		if !slices.Contains(response.User.GetExtra()[authorization.ClusterNameKey], string(cluster)) {
			return nil, false, errForeign
		}
		return response, true, nil
	})
}

// WithImpersonationScope limits an impersonated identity to the cluster of the request, unless a member of
// system:masters impersonates. It stands behind impersonation and authorization.
func WithImpersonationScope(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if original, ok := r.Context().Value(originalUserKey{}).(*originalUser); ok && original.impersonates && original.user != nil &&
			!slices.Contains(original.user.GetGroups(), user.SystemPrivilegedGroup) {
			r = r.WithContext(withScope(r.Context()))
		}
		next.ServeHTTP(w, r)
	})
}

func withScope(ctx context.Context) context.Context {
	cluster, ok := logicalcluster.From(ctx)
	u, known := request.UserFrom(ctx)
	if !ok || !known {
		return ctx
	}
	extra := maps.Clone(u.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	extra[authorization.ScopesKey] = append(slices.Clone(extra[authorization.ScopesKey]), "cluster:"+cluster.String())
	return request.WithUser(ctx, &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra})
}

type originalUserKey struct{}

// originalUser remembers who made a request that impersonates somebody.
type originalUser struct {
	impersonates bool
	user         user.Info
}

// WithOriginalUser prepares a request for RememberOriginalUser; it stands before authentication.
func WithOriginalUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values("Impersonate-User")) > 0 {
			r = r.WithContext(context.WithValue(r.Context(), originalUserKey{}, &originalUser{impersonates: true}))
		}
		next.ServeHTTP(w, r)
	})
}

// RememberOriginalUser makes inner record whom it authenticated, for WithImpersonationScope.
func RememberOriginalUser(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := inner.AuthenticateRequest(r)
		if ok && err == nil {
			if original, found := r.Context().Value(originalUserKey{}).(*originalUser); found {
				original.user = response.User
			}
		}
		return response, ok, err
	})
}
