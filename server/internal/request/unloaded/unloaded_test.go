package unloaded

import (
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestOnlyTheResourceOfAnUnloadedExportIsRefused(t *testing.T) {
	widgets := schema.GroupResource{Group: "example.org", Resource: "widgets"}
	check := func(cluster logicalcluster.Name, resource schema.GroupResource) error {
		if cluster == "consumer" && resource == widgets {
			return apierrors.NewServiceUnavailable("not loaded")
		}
		return nil
	}
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	own := func(r *http.Request) bool { return r.Header.Get("Own") != "" }
	h := WithRefusal(next, check, infos, own, scheme.Codecs)
	for name, test := range map[string]struct {
		cluster logicalcluster.Cluster
		path    string
		own     bool
		want    int
	}{
		"the resource":                    {logicalcluster.Cluster{Name: "consumer"}, "/apis/example.org/v1/namespaces/a/widgets/x/status", false, 503},
		"another resource":                {logicalcluster.Cluster{Name: "consumer"}, "/apis/example.org/v1/gadgets", false, 418},
		"another group":                   {logicalcluster.Cluster{Name: "consumer"}, "/api/v1/namespaces/widgets", false, 418},
		"discovery":                       {logicalcluster.Cluster{Name: "consumer"}, "/apis/example.org/v1", false, 418},
		"another cluster":                 {logicalcluster.Cluster{Name: "other"}, "/apis/example.org/v1/widgets", false, 418},
		"all clusters":                    {logicalcluster.Cluster{Wildcard: true}, "/apis/example.org/v1/widgets", false, 418},
		"a request of the server itself":  {logicalcluster.Cluster{Name: "consumer"}, "/apis/example.org/v1/widgets", true, 418},
		"a request without a cluster":     {logicalcluster.Cluster{}, "/healthz", false, 418},
		"a review of access to the thing": {logicalcluster.Cluster{Name: "consumer"}, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false, 418},
	} {
		r := httptest.NewRequest(http.MethodGet, test.path, nil)
		if test.own {
			r.Header.Set("Own", "yes")
		}
		if test.cluster != (logicalcluster.Cluster{}) {
			r = r.WithContext(logicalcluster.WithCluster(r.Context(), test.cluster))
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != test.want {
			t.Errorf("%s: got %d, want %d: %s", name, w.Code, test.want, w.Body)
		}
	}
}
