package path

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// places is a tree with the paths root:org, root:down, which is unavailable, and root:mounted.
type places struct{}

func (places) Find(_ *http.Request, path string) (pathindex.Place, bool, error) {
	switch path {
	case "root:org":
		return pathindex.Place{Cluster: "2x9k"}, true, nil
	case "root:down":
		return pathindex.Place{Cluster: "3y8k", Code: http.StatusServiceUnavailable}, true, nil
	case "root:mounted":
		return pathindex.Place{URL: "https://elsewhere"}, true, nil
	}
	return pathindex.Place{}, false, nil
}

// seen is what the handler behind the filter gets.
type seen struct {
	called  bool
	path    string
	uri     string
	cluster string
	mounted string
}

func serve(method, target string) (seen, *httptest.ResponseRecorder) {
	var got seen
	h := WithCluster(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c, _ := logicalcluster.From(r.Context())
		mounted, _ := mount.PathFrom(r.Context())
		got = seen{called: true, path: r.URL.Path, uri: r.RequestURI, cluster: c.String(), mounted: mounted}
	}), legacyscheme.Codecs, places{})
	r := httptest.NewRequest(method, "https://kcp.test/", nil)
	u, err := url.ParseRequestURI(target)
	if err != nil {
		panic(err)
	}
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = u.Path, u.RawPath, u.RawQuery
	r.RequestURI = target
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return got, w
}

func TestTheClusterIsRemovedFromThePath(t *testing.T) {
	for target, want := range map[string]seen{
		"/clusters/root/api/v1/namespaces":               {true, "/api/v1/namespaces", "/api/v1/namespaces", "root", ""},
		"/clusters/2x9k/apis?limit=5":                    {true, "/apis", "/apis?limit=5", "2x9k", ""},
		"/clusters/root:org/api":                         {true, "/api", "/api", "2x9k", ""},
		"/clusters/system:admin/api":                     {true, "/api", "/api", "system:admin", ""},
		"/clusters/*/api/v1/configmaps":                  {true, "/api/v1/configmaps", "/api/v1/configmaps", "*", ""},
		"/clusters/root":                                 {true, "/", "/", "root", ""},
		"/clusters/root/":                                {true, "/", "/", "root", ""},
		"/clusters/a/apis/url.test/v1/clusters/x/status": {true, "/apis/url.test/v1/clusters/x/status", "/apis/url.test/v1/clusters/x/status", "a", ""},
		"/readyz":                               {true, "/readyz", "/readyz", "", ""},
		"/livez/etcd":                           {true, "/livez/etcd", "/livez/etcd", "", ""},
		"/metrics":                              {true, "/metrics", "/metrics", "", ""},
		"/clusters/root:mounted/api/v1?limit=5": {true, "/api/v1", "/api/v1?limit=5", "", "root:mounted"},
	} {
		if got, w := serve(http.MethodGet, target); got != want {
			t.Errorf("%s: got %+v (%d %s), want %+v", target, got, w.Code, w.Body, want)
		}
	}
}

func TestPathsWithoutAClusterAreRefused(t *testing.T) {
	for target, want := range map[string]int{
		"/":                                        0,
		"/api":                                     http.StatusNotFound,
		"/api/v1/namespaces":                       http.StatusNotFound,
		"/apis":                                    http.StatusNotFound,
		"/clusters":                                http.StatusNotFound,
		"/clusters/":                               http.StatusBadRequest,
		"/clusters//api":                           http.StatusBadRequest,
		"/clusters/A/api":                          http.StatusBadRequest,
		"/clusters/a_b/api":                        http.StatusBadRequest,
		"/clusters/-a/api":                         http.StatusBadRequest,
		"/clusters/a-/api":                         http.StatusBadRequest,
		"/clusters/a::b/api":                       http.StatusBadRequest,
		"/clusters/**/api":                         http.StatusBadRequest,
		"/clusters/%2a%2a/api":                     http.StatusBadRequest,
		"/clusters/a%2fb/api":                      http.StatusBadRequest,
		"/clusters/a/api%2Fv1":                     http.StatusBadRequest,
		"/clusters/a%00/api":                       http.StatusBadRequest,
		"/clusters/a%5c/api":                       http.StatusBadRequest,
		"/clusters/a%252fb/api":                    http.StatusBadRequest,
		"/clusters/a/../b/api":                     http.StatusBadRequest,
		"/clusters/a/./api":                        http.StatusBadRequest,
		"/clusters/a/%2e%2e/b/api":                 http.StatusBadRequest,
		"/clusters/../api":                         http.StatusBadRequest,
		"/clusters/a//api":                         http.StatusBadRequest,
		"/clusters/a/clusters/b/api":               http.StatusNotFound,
		"/clusters/a/clusters":                     http.StatusNotFound,
		"/clusters/root:org:team/api":              http.StatusNotFound,
		"/clusters/root:down/api":                  http.StatusServiceUnavailable,
		"/clusters/root:mounted/metrics":           http.StatusNotImplemented,
		"/clusters/root:mounted/clusters/root/api": http.StatusNotFound,
		"/clusters/root:mounted/../root/api":       http.StatusBadRequest,
		"/clusters/a/metrics":                      http.StatusNotImplemented,
		"/clusters/a/metrics/slis":                 http.StatusNotImplemented,
		"/clusters/*/metrics":                      http.StatusNotImplemented,
		"/clusters/" + strings.Repeat("a", 10_000) + "/api": http.StatusBadRequest,
		"/clusters/%ff/api": http.StatusBadRequest,
		"/Clusters/a/api":   http.StatusNotFound,
		"//clusters/a/api":  http.StatusNotFound,
	} {
		got, w := serve(http.MethodGet, target)
		if want == 0 {
			continue
		}
		if got.called || w.Code != want {
			t.Errorf("%s: got %d (handler called: %t), want %d", target, w.Code, got.called, want)
		}
		requireStatus(t, target, w)
	}
}

func TestTheWildcardIsReadOnly(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, "CONNECT", "BREW"} {
		got, w := serve(method, "/clusters/*/api/v1/namespaces/x/configmaps")
		if got.called || w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: got %d (handler called: %t), want 405", method, w.Code, got.called)
		}
		requireStatus(t, method, w)
	}
}

// requireStatus fails unless the response is a Status with a reason and a message.
func requireStatus(t *testing.T, what string, w *httptest.ResponseRecorder) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || status.Kind != "Status" || status.Reason == "" || len(status.Message) < 10 {
		t.Errorf("%s: body is no Status that helps: %s", what, w.Body)
	}
	if strings.Contains(what, "aaaaaaaaaa") && len(status.Message) > 1000 {
		t.Errorf("%.40s…: the message repeats the input", what)
	}
}

func FuzzNoPathReachesAClusterThatItDoesNotName(f *testing.F) {
	for _, seed := range []string{"/clusters/a/api", "/clusters/*/api", "/clusters/a/../b", "/clusters/a%2f..%2fb/api", "//clusters/a", "/clusters/a:b/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Path == "" || u.Path[0] != '/' {
			return
		}
		got, w := serve(http.MethodGet, target)
		if !got.called {
			requireStatus(t, target, w)
			return
		}
		if got.cluster != "" && got.cluster != "*" && !strings.HasPrefix(u.Path, "/clusters/"+got.cluster+"/") && u.Path != "/clusters/"+got.cluster {
			t.Errorf("%q reached cluster %q", target, got.cluster)
		}
		if got.cluster != "" && (strings.Contains(got.path, "..") && strings.Contains(got.path, "/../") || strings.Contains(got.path, "//") || strings.HasPrefix(got.path, "/clusters/")) {
			t.Errorf("%q became path %q", target, got.path)
		}
	})
}

func TestALogicalClusterDoesNotServePathsOfTheServer(t *testing.T) {
	h := WithoutServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), legacyscheme.Codecs)
	for path, inCluster := range map[string]bool{
		"/": true, "/api": true, "/apis/apps/v1": true, "/openapi/v3": true, "/version": true, "/livez": true, "/readyz/ping": true,
		"/.well-known/openid-configuration": true, "/openid/v1/jwks": true,
		"/metrics": false, "/metrics/slis": false, "/debug/pprof/heap": false, "/debug/flags/v": false, "/statusz": false, "/index.html": false, "/apiserver": false,
	} {
		for _, cluster := range []logicalcluster.Cluster{{}, {Name: "a"}, {Wildcard: true}} {
			r := httptest.NewRequest(http.MethodGet, "https://kcp.test"+path, nil)
			r = r.WithContext(logicalcluster.WithCluster(r.Context(), cluster))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			want := http.StatusNoContent
			if !inCluster && cluster != (logicalcluster.Cluster{}) {
				want = http.StatusNotFound
			}
			if w.Code != want {
				t.Errorf("%s in %q: got %d, want %d", path, cluster, w.Code, want)
			}
		}
	}
}
