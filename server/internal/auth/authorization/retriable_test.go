package authorization

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kcplane/kcp/server/internal/tenancy/references"
)

// The chain is WithUndecided, upstream's filter, and a handler that responds with 200, or with 500 to requests for /broken.
func TestClientsRetryWhatIsNotDecidedNow(t *testing.T) {
	for name, c := range map[string]struct {
		decision authorizer.Decision
		err      error
		path     string
		code     int
		retry    string
		text     string
	}{
		"allowed":                         {allow, nil, "/", 200, "", "ok"},
		"not authenticated":               {noOpinion, references.Unavailable("late"), "/unauthenticated", 503, "1", "late"},
		"allowed in spite of an error":    {allow, references.Unavailable("late"), "/", 200, "", "ok"},
		"allowed, and the handler fails":  {allow, references.Unavailable("late"), "/broken", 500, "", "broken"},
		"refused":                         {noOpinion, nil, "/", 403, "", "Forbidden"},
		"another shard does not respond":  {noOpinion, references.Unavailable("asking shard us"), "/", 503, "1", "asking shard us"},
		"beyond the limits":               {noOpinion, apierrors.NewTooManyRequests("too many", 1), "/", 429, "1", "too many"},
		"another error is one as before":  {noOpinion, errors.New("no such role"), "/", 500, "", "no such role"},
		"a denial with a retriable error": {authorizer.DecisionDeny, references.Unavailable("late"), "/", 503, "1", "late"},
	} {
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/broken" {
				http.Error(w, "broken", http.StatusInternalServerError)
				return
			}
			_, _ = w.Write([]byte("ok"))
		})
		decide := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return c.decision, "", c.err
		})
		authorized := filters.WithAuthorization(handler, Undecided(decide), scheme.Codecs)
		chain := WithUndecided(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/unauthenticated" {
				Undecide(r.Context(), errors.New("another error"))
				Undecide(r.Context(), c.err)
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
				return
			}
			authorized.ServeHTTP(w, r)
		}), scheme.Codecs)
		ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "ada"})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{Path: c.path, Verb: "get"})
		got := httptest.NewRecorder()
		chain.ServeHTTP(got, httptest.NewRequest(http.MethodGet, c.path, nil).WithContext(ctx))
		if got.Code != c.code || got.Header().Get("Retry-After") != c.retry || !strings.Contains(got.Body.String(), c.text) {
			t.Errorf("%s: got %d, retry after %q, %s", name, got.Code, got.Header().Get("Retry-After"), got.Body)
		}
	}
}
