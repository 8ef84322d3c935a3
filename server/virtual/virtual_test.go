package virtual

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// openView is a view that lets everybody do everything.
type openView struct{ target logicalcluster.Cluster }

func (openView) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

func (v openView) Serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	next.ServeHTTP(w, r.WithContext(logicalcluster.WithCluster(r.Context(), v.target)))
}

func TestAllClustersOfAViewCanOnlyBeRead(t *testing.T) {
	views := Views{"open": func(path string) (View, string, error) {
		target, rest, err := Cluster(path)
		return openView{target}, rest, err
	}}
	for _, c := range []struct {
		cluster, verb string
		want          int
	}{
		{"*", "list", http.StatusNoContent}, {"*", "watch", http.StatusNoContent}, {"*", "", http.StatusNoContent},
		{"*", "create", http.StatusMethodNotAllowed}, {"*", "update", http.StatusMethodNotAllowed}, {"*", "patch", http.StatusMethodNotAllowed},
		{"*", "delete", http.StatusMethodNotAllowed}, {"*", "deletecollection", http.StatusMethodNotAllowed}, {"*", "get", http.StatusMethodNotAllowed},
		{"a", "create", http.StatusNoContent}, {"a", "get", http.StatusNoContent},
	} {
		served := Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info := &request.RequestInfo{IsResourceRequest: c.verb != "", Verb: c.verb, APIGroup: "example.org", APIVersion: "v1", Resource: "widgets"}
			served.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
		})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, Prefix+"open/clusters/"+c.cluster+"/apis/example.org/v1/widgets", nil)
		views.WithView(http.NotFoundHandler(), inner, scheme.Codecs).ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s in %s: got %d %s, want %d", c.verb, c.cluster, w.Code, w.Body, c.want)
		}
	}
}
