package authentication

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// errNoCluster rejects a token that could be used in every cluster.
var errNoCluster = errors.New("the service account token has no logical cluster; request a new token")

// errForeign rejects a review of a token in a cluster other than its own.
var errForeign = errors.New("the token belongs to a service account of another logical cluster")

// errTwoClusters rejects a request with tokens of different logical clusters: only one of them would be checked.
var errTwoClusters = errors.New("the request has tokens of different logical clusters")

// Wrap makes inner check service account tokens against the logical cluster that issued them, and adds that cluster
// to the user for later steps. Identities from other sources cannot claim a cluster.
//
// inner must not have upstream's token cache, which reads accounts without the context of the request.
func Wrap(inner authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		borne := bearerTokens(r)
		claimed, err := commonCluster(borne)
		if err != nil {
			return nil, false, err
		}
		scoped := r
		if claimed != "" {
			scoped = r.WithContext(withBorne(logicalcluster.WithName(r.Context(), claimed), borne))
		}
		response, ok, err := inner.AuthenticateRequest(scoped)
		if !ok || err != nil {
			return response, ok, err
		}
		// Authenticators remove credentials after use, so that no later handler sees them.
		r.Header = scoped.Header
		if err := authorization.CheckExtra(response.User); err != nil {
			return nil, false, err
		}
		if _, issued := authorization.IssuedIn(response.User); issued {
			return response, true, nil // from a front proxy, which knows the issuers of the cluster
		}
		switch {
		case !isServiceAccount(response.User):
			return withExtra(response, nil), true, nil
		case claimed == "":
			return checkUnclaimed(response)
		}
		return checkClaimed(response, claimed, len(bearerTokens(scoped)) < len(borne))
	})
}

// checkClaimed checks a service account of a request whose token claims a cluster. The claim counts only if the user was
// authenticated by the token, not by a certificate or by the headers of a front proxy in the same request.
func checkClaimed(response *authenticator.Response, claimed logicalcluster.Name, used bool) (*authenticator.Response, bool, error) {
	if vouched, ok := response.User.GetExtra()[logicalcluster.UserExtraKey]; ok {
		if !slices.Equal(vouched, []string{string(claimed)}) {
			return nil, false, errForeign
		}
		return response, true, nil
	}
	if !used {
		return nil, false, errNoCluster
	}
	return withExtra(response, []string{string(claimed)}), true, nil
}

// checkUnclaimed checks a service account of a request without a token, or with a token that claims no cluster.
func checkUnclaimed(response *authenticator.Response) (*authenticator.Response, bool, error) {
	if _, ok := response.User.GetExtra()[logicalcluster.UserExtraKey]; ok {
		return response, true, nil // from a front proxy, or from a certificate that the administrator signed
	}
	return nil, false, errNoCluster
}

func isServiceAccount(u user.Info) bool {
	return strings.HasPrefix(u.GetName(), serviceaccount.ServiceAccountUsernamePrefix)
}

// withExtra returns the response with the cluster of its service account set to clusters, or removed if clusters is
// empty.
func withExtra(response *authenticator.Response, clusters []string) *authenticator.Response {
	extra := maps.Clone(response.User.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	if clusters == nil && len(extra[logicalcluster.UserExtraKey]) == 0 {
		return response
	}
	delete(extra, logicalcluster.UserExtraKey)
	if clusters != nil {
		extra[logicalcluster.UserExtraKey] = clusters
	}
	result := *response
	result.User = &user.DefaultInfo{Name: response.User.GetName(), UID: response.User.GetUID(),
		Groups: response.User.GetGroups(), Extra: extra}
	return &result
}

// Reviews returns inner for TokenReviews: it rejects a token of a service account of another cluster, because the
// user name denotes another account in the cluster of the review.
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
		if !slices.Contains(response.User.GetExtra()[logicalcluster.UserExtraKey], string(cluster)) {
			return nil, false, errForeign
		}
		return response, true, nil
	})
}
