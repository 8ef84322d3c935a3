package authentication

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	kubescheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// impersonationChain is the part of the server that handles impersonation. Mallory has all permissions in a, including
// impersonation, and none in b. The handler reports the user of each request.
func impersonationChain(as *user.DefaultInfo, constrained bool) http.Handler {
	rights := authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		cluster, _ := logicalcluster.NameFrom(ctx)
		if cluster == "a" || slices.Contains(a.GetUser().GetGroups(), user.SystemPrivilegedGroup) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	h := WithImpersonationScope(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, _ := genericrequest.UserFrom(r.Context())
		fmt.Fprintf(w, "%s %v", u.GetName(), u.GetExtra()[authorization.ScopesKey])
	}))
	if constrained {
		h = impersonation.WithConstrainedImpersonation(h, rights, kubescheme.Codecs)
	} else {
		h = impersonation.WithImpersonation(h, rights, kubescheme.Codecs)
	}
	authn := RememberOriginalUser(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: as}, true, nil
	}))
	impersonating := h
	return WithOriginalUser(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, _, _ := authn.AuthenticateRequest(r)
		ctx := genericrequest.WithUser(r.Context(), response.User)
		ctx = genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "secrets"})
		impersonating.ServeHTTP(w, r.WithContext(ctx))
	}))
}

func TestImpersonationIsAllowedAndLimitedPerCluster(t *testing.T) {
	mallory := &user.DefaultInfo{Name: "mallory", Groups: []string{user.AllAuthenticated}}
	master := &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	for _, constrained := range []bool{true, false} {
		for _, c := range []struct {
			as    *user.DefaultInfo
			steps []struct{ cluster, impersonate, want string }
		}{
			{mallory, []struct{ cluster, impersonate, want string }{
				{"b", "alice", ""},
				{"a", "alice", "alice [cluster:a]"},
				{"b", "alice", ""}, // a permission in a is cached for a
				{"a", "alice", "alice [cluster:a]"},
				{"a", "system:serviceaccount:ns:bot", "system:serviceaccount:ns:bot [cluster:a]"},
				{"b", "system:serviceaccount:ns:bot", ""},
				{"b", "", "mallory []"},
			}},
			{master, []struct{ cluster, impersonate, want string }{{"b", "alice", "alice []"}}},
		} {
			chain := impersonationChain(c.as, constrained)
			for i, step := range c.steps {
				r := requestAt(logicalcluster.Name(step.cluster))
				if step.impersonate != "" {
					r.Header.Set("Impersonate-User", step.impersonate)
				}
				w := httptest.NewRecorder()
				chain.ServeHTTP(w, r)
				if got := w.Body.String(); step.want == "" && w.Code != http.StatusForbidden || step.want != "" && got != step.want {
					t.Errorf("%s, step %d (constrained %t): got %d %s, want %q", c.as.Name, i, constrained, w.Code, got, step.want)
				}
			}
		}
	}
}

func TestOnlyImpersonatorsAreRecorded(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice", Extra: map[string][]string{RequestedClusterKey: {"forged"}}}
	authn := RememberOriginalUser(authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: alice}, true, nil
	}))
	r := requestAt("a")
	if response, _, _ := authn.AuthenticateRequest(r); response.User != user.Info(alice) {
		t.Error("a request without impersonation has another user")
	}
	original := &authorization.Impersonator{}
	response, _, _ := authn.AuthenticateRequest(r.WithContext(authorization.WithImpersonator(r.Context(), original)))
	if got := response.User.GetExtra()[RequestedClusterKey]; !slices.Equal(got, []string{"a"}) || original.User == nil || alice.Extra[RequestedClusterKey][0] != "forged" {
		t.Errorf("got %v, and %v is remembered", got, original.User)
	}
}
