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

// Impersonation is upstream's filter, with these steps around it, in the order of a request:
//
//  1. WithOriginalUser marks requests that impersonate, before the filter removes the headers that say so.
//  2. RememberOriginalUser, within authentication, records who asks and where.
//  3. The filter asks the authorizer for each part of the identity, whose first step keeps guarded groups away.
//  4. The authorizer judges the request itself by the impersonated identity, limited to the cluster.
//  5. WithImpersonationScope gives everything behind authorization that limited identity.

// RequestedClusterKey is the extra value of an impersonator that tells the logical cluster of the request. Upstream's
// filter remembers for some seconds who may impersonate whom, by all that it knows about both: without the cluster, what
// was allowed in one would be allowed in all.
const RequestedClusterKey = "impersonation.kcp.io/requested-cluster"

// WithOriginalUser prepares a request for RememberOriginalUser; it stands before authentication.
func WithOriginalUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values(authenticationv1.ImpersonateUserHeader)) > 0 {
			r = r.WithContext(authorization.WithImpersonator(r.Context(), &authorization.Impersonator{}))
		}
		next.ServeHTTP(w, r)
	})
}

// RememberOriginalUser makes inner record whom it authenticated, if the request impersonates somebody.
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

// WithImpersonationScope limits an impersonated identity to the cluster of the request, unless a member of
// system:masters impersonates. It stands behind impersonation and authorization.
func WithImpersonationScope(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u := authorization.ImpersonatedUser(r.Context()); u != nil {
			r = r.WithContext(authorization.WithImpersonator(request.WithUser(r.Context(), u), nil))
		}
		next.ServeHTTP(w, r)
	})
}
