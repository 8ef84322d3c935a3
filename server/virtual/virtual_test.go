package virtual

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// openView is a view that allows all requests of all users.
type openView struct{ target logicalcluster.Cluster }

func (openView) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

func (v openView) Serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	next.ServeHTTP(w, r.WithContext(logicalcluster.WithCluster(r.Context(), v.target)))
}

func TestRequestsAcrossClustersOfAViewAreReadOnly(t *testing.T) {
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

// homedView is an openView with a home.
type homedView struct {
	openView
	home logicalcluster.Name
}

func (v homedView) Home() logicalcluster.Name { return v.home }

func (v openView) Target() logicalcluster.Cluster { return v.target }

func TestTheClustersOfAViewAreLookedUp(t *testing.T) {
	views := Views{"homed": func(path string) (View, string, error) {
		home, _, target, rest, err := Of(path)
		return homedView{openView{target}, home}, rest, err
	}}
	unavailable := apierrors.NewServiceUnavailable("storage does not answer")
	for path, want := range map[string]struct {
		asked []logicalcluster.Name
		code  int
	}{
		"provider/export/clusters/consumer/api": {[]logicalcluster.Name{"provider", "consumer"}, http.StatusNoContent},
		"provider/export/clusters/*/api":        {[]logicalcluster.Name{"provider"}, http.StatusNoContent},
		"provider/export/clusters/broken/api":   {[]logicalcluster.Name{"provider", "broken"}, http.StatusServiceUnavailable},
	} {
		var asked []logicalcluster.Name
		find := func(_ *http.Request, cluster logicalcluster.Name) error {
			asked = append(asked, cluster)
			if cluster == "broken" {
				return unavailable
			}
			return nil
		}
		inner := WithKnown(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), find, scheme.Codecs)
		w := httptest.NewRecorder()
		views.WithView(http.NotFoundHandler(), inner, scheme.Codecs).ServeHTTP(w, httptest.NewRequest(http.MethodGet, Prefix+"homed/"+path, nil))
		if w.Code != want.code || !slices.Equal(asked, want.asked) {
			t.Errorf("%s: %d, %v were looked up; want %d, %v", path, w.Code, asked, want.code, want.asked)
		}
	}
}
