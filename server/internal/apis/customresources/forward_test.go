package customresources

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// requestFor returns a request with its RequestInfo, as the filters of the server build it.
func requestFor(t *testing.T, method, path string) (*http.Request, *request.RequestInfo) {
	t.Helper()
	r := httptest.NewRequest(method, "https://kcp", nil)
	r.URL.Path = path
	info, err := paths.NewRequestInfo(r)
	if err != nil {
		t.Fatal(err)
	}
	ctx := request.WithUser(request.WithRequestInfo(t.Context(), info), &user.DefaultInfo{Name: "jane"})
	return r.WithContext(ctx), info
}

func TestForwardedPathsNameTheObjectThatWasAuthorized(t *testing.T) {
	namespaced, whole := &Definition{CRD: &apiextensionsv1.CustomResourceDefinition{}}, &Definition{CRD: &apiextensionsv1.CustomResourceDefinition{}}
	namespaced.CRD.Spec.Scope, whole.CRD.Spec.Scope = apiextensionsv1.NamespaceScoped, apiextensionsv1.ClusterScoped
	for path, d := range map[string]*Definition{
		"/api/v1/namespaces/default/pods/web/log": namespaced, "/apis/example.org/v1/namespaces/default/books/one/log": namespaced,
		"/apis/example.org/v1/shelves/one/log": whole,
	} {
		_, info := requestFor(t, http.MethodGet, path)
		if got, ok := pathOf(d, info); got != path || !ok || !isForwarded(info) {
			t.Errorf("%s becomes %q, %t", path, got, ok)
		}
	}
	for path, d := range map[string]*Definition{
		"/api/v1/namespaces/default/pods/../log": namespaced, "/api/v1/namespaces/../pods/web/log": namespaced, "/api/v1/namespaces/default/pods/./log": namespaced,
		"/api/v1/namespaces/default/pods/a%2fb/log": namespaced, "/api/v1/namespaces/default/pods/web/log/more": namespaced, "/api/v1/namespaces/default/pods/web/..": namespaced,
		"/api/v1/namespaces/default/pods/web/log/../../../../other": namespaced, "/api/v1/pods/web/log": namespaced, "/apis/example.org/v1/namespaces/default/shelves/one/log": whole,
	} {
		_, info := requestFor(t, http.MethodGet, path)
		if got, ok := pathOf(d, info); ok {
			t.Errorf("%s becomes %q", path, got)
		}
	}
	for _, path := range []string{"/api/v1/namespaces/default/pods/web", "/api/v1/namespaces/default/pods/web/status", "/apis/example.org/v1/books/one/scale"} {
		if _, info := requestFor(t, http.MethodGet, path); isForwarded(info) {
			t.Errorf("%s is forwarded", path)
		}
	}
}

// connections is an admission plugin that refuses connections to a subresource.
type connections struct {
	admission.Interface
	refused string
}

func (connections) Handles(operation admission.Operation) bool { return operation == admission.Connect }

func (c connections) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() == c.refused && a.GetName() == "web" && a.GetNamespace() == "default" && a.GetUserInfo().GetName() == "jane" {
		return admission.NewForbidden(a, nil)
	}
	return nil
}

func TestAnUpgradedConnectionRequiresThePermissionToCreate(t *testing.T) {
	d, allowed := podDefinition(), ""
	h := &Handler{config: Config{Admission: connections{refused: "attach"}, Authorizer: authorizer.AuthorizerFunc(
		func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb()+" "+a.GetResource()+"/"+a.GetSubresource() == allowed && a.GetUser().GetName() == "jane" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})}}
	for _, test := range []struct {
		method, subresource, allowed string
		upgrade, want                bool
	}{
		{http.MethodGet, "exec", "get pods/exec", true, false},
		{http.MethodGet, "exec", "create pods/exec", true, true},
		{http.MethodGet, "log", "", false, true}, // was authorized as it is
		{http.MethodPost, "exec", "", true, true},
		{http.MethodPost, "attach", "", true, false}, // by admission
		{http.MethodGet, "attach", "create pods/attach", true, false},
	} {
		allowed = test.allowed
		r, info := requestFor(t, test.method, "/api/v1/namespaces/default/pods/web/"+test.subresource)
		if test.upgrade {
			r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
		}
		if err := h.admitConnection(r, d, info); (err == nil) != test.want || (err != nil && !apierrors.IsForbidden(err)) {
			t.Errorf("%+v: got %v", test, err)
		} else if err != nil && strings.Contains(err.Error(), "internal") {
			t.Error(err)
		}
	}
}
