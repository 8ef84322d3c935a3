package program

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers/clusterclient"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
)

// tokenReviewer is an authenticator that creates TokenReviews in kcp. Its tokens have the home of their view, if it has one, and a
// space as a prefix, because the validity of a token depends on both.
type tokenReviewer struct {
	reviews authenticationclient.TokenReviewInterface
	// home is the logical cluster that reviews tokens for views without a home.
	home logicalcluster.Name
}

// withHome adds the prefix that tokenReviewer expects to tokens.
func withHome(reviewed authenticator.Token) authenticator.Token {
	return authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		home, _ := virtual.Home(ctx)
		return reviewed.AuthenticateToken(ctx, string(home)+" "+token)
	})
}

// AuthenticateToken implements authenticator.Token. Tokens of service accounts are reviewed in their own logical cluster.
func (t tokenReviewer) AuthenticateToken(ctx context.Context, homeAndToken string) (*authenticator.Response, bool, error) {
	home, token, _ := strings.Cut(homeAndToken, " ")
	cluster := cmp.Or(authentication.ClaimedCluster(token), logicalcluster.Name(home), t.home)
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	answer, err := t.reviews.Create(logicalcluster.WithName(ctx, cluster), review, metav1.CreateOptions{})
	// the cluster does not exist, so the user has no permissions in it
	if home != "" && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
		answer, err = t.reviews.Create(logicalcluster.WithName(ctx, t.home), review, metav1.CreateOptions{})
	}
	if err != nil || !answer.Status.Authenticated {
		return nil, false, err
	}
	u := &user.DefaultInfo{Name: answer.Status.User.Username, UID: answer.Status.User.UID, Groups: answer.Status.User.Groups,
		Extra: map[string][]string{}}
	for key, values := range answer.Status.User.Extra {
		u.Extra[key] = values
	}
	return &authenticator.Response{User: u}, true, nil
}

// reviewer is an authorizer that creates SubjectAccessReviews in kcp, in the logical cluster of a context.
type reviewer struct {
	reviews authorizationclient.SubjectAccessReviewInterface
}

// Authorize implements authorizer.UnconditionalAuthorizer. Results are not cached, so that a revoked permission takes
// effect at once.
func (r reviewer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: a.GetUser().GetName(), UID: a.GetUser().GetUID(), Groups: a.GetUser().GetGroups(),
		Extra: map[string]authorizationv1.ExtraValue{}}
	for key, values := range a.GetUser().GetExtra() {
		spec.Extra[key] = values
	}
	if a.IsResourceRequest() {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: a.GetNamespace(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
			Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
		}
	} else {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.GetPath(), Verb: a.GetVerb()}
	}
	answer, err := r.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return authorizer.DecisionDeny, "the logical cluster does not exist, or this program has no permission to create access " +
			"reviews in it", nil
	case err != nil:
		return authorizer.DecisionDeny, "requesting an access review from kcp failed", err
	case answer.Status.Allowed:
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, answer.Status.Reason, nil
}

// acting returns a configuration for clients that send each call to the cluster, and as the user, in its context.
func acting(base *rest.Config) *rest.Config {
	config := clusterclient.ForContext(base)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return actor{next} })
	return config
}

type actor struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. It impersonates the user, so that kcp knows the user, and adds a warrant of an
// administrator of that one logical cluster. It does not impersonate in requests across all clusters.
func (t actor) RoundTrip(r *http.Request) (*http.Response, error) {
	u, ok := request.UserFrom(r.Context())
	cluster, found := logicalcluster.From(r.Context())
	if !ok || !found || cluster.Wildcard {
		return t.next.RoundTrip(r)
	}
	warrant, err := json.Marshal(map[string]any{
		"user": "system:serviceaccount:default:rest", "groups": []string{authorization.AdminGroup},
		"extra": map[string][]string{logicalcluster.UserExtraKey: {string(cluster.Name)}},
	})
	if err != nil {
		return nil, err
	}
	as := transport.ImpersonationConfig{UserName: u.GetName(), UID: u.GetUID(), Groups: authorization.Unguarded(u.GetGroups()),
		Extra: map[string][]string{}}
	maps.Copy(as.Extra, u.GetExtra())
	as.Extra[authorization.WarrantKey] = append(slices.Clone(as.Extra[authorization.WarrantKey]), string(warrant))
	return transport.NewImpersonatingRoundTripper(as, t.next).RoundTrip(r)
}

// forward returns a handler that passes requests on to kcp, without the credentials of their clients.
func forward(config *rest.Config) (http.Handler, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	rt, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Transport: rt, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			maps.DeleteFunc(r.Out.Header, func(name string, _ []string) bool {
				return name == "Authorization" || name == "Cookie" || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-")
			})
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			virtual.Fail(w, r, apierrors.NewServiceUnavailable("kcp is not reachable"))
		},
	}, nil
}
