package authentication

import (
	"maps"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Impersonation uses upstream's filter, with these steps around it, in the order of a request:
//
//  1. WithOriginalUser marks requests that impersonate, before the filter removes the headers that say so.
//  2. RememberOriginalUser, within authentication, records the user and the cluster of the request.
//  3. The filter calls the authorizer for each part of the identity; the first step of the authorizer protects
//     guarded groups.
//  4. The authorizer authorizes the request itself with the impersonated identity, limited to the cluster.
//  5. WithImpersonationScope passes that limited identity to everything behind authorization.

// RequestedClusterKey is the key of an impersonator's extra value with the logical cluster of the request. Upstream's
// filter caches permissions to impersonate for some seconds, by all attributes of both users: without the cluster, a
// permission in one cluster would be valid in all clusters.
const RequestedClusterKey = "impersonation.kcp.io/requested-cluster"

// WithOriginalUser prepares a request for RememberOriginalUser; it must run before authentication.
func WithOriginalUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values(authenticationv1.ImpersonateUserHeader)) > 0 {
			r = r.WithContext(authorization.WithImpersonator(r.Context(), &authorization.Impersonator{}))
		}
		next.ServeHTTP(w, r)
	})
}

// RememberOriginalUser makes inner record the authenticated user if the request impersonates another user.
func RememberOriginalUser(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := inner.AuthenticateRequest(r)
		original := authorization.ImpersonatorFrom(r.Context())
		if !ok || err != nil || original == nil {
			return response, ok, err
		}
		requested := "" // the server itself
		if cluster, found := logicalcluster.From(r.Context()); found {
			requested = cluster.String()
		}
		extra := maps.Clone(response.User.GetExtra())
		if extra == nil {
			extra = map[string][]string{}
		}
		extra[RequestedClusterKey] = []string{requested}
		original.User = &user.DefaultInfo{Name: response.User.GetName(), UID: response.User.GetUID(),
			Groups: response.User.GetGroups(), Extra: extra}
		result := *response
		result.User = original.User
		return &result, true, nil
	})
}

// WithImpersonationScope limits an impersonated identity to the cluster of the request, unless the impersonator is a
// member of system:masters. It must run after impersonation and authorization.
func WithImpersonationScope(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u := authorization.ImpersonatedUser(r.Context()); u != nil {
			r = r.WithContext(authorization.WithImpersonator(request.WithUser(r.Context(), u), nil))
		}
		next.ServeHTTP(w, r)
	})
}
