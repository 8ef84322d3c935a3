package customresources

import (
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestAnIdentityIsNotPartOfTheNameOfAResource(t *testing.T) {
	resolver := RequestInfo{&request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}}
	for path, want := range map[string]struct {
		subresource, identity string
		refused               bool
	}{
		"/apis/example.org/v1/namespaces/n/widgets":                {},
		"/apis/example.org/v1/namespaces/n/widgets:abc/one/status": {subresource: "status", identity: "abc"},
		"/apis/example.org/v1/widgets:abc":                         {identity: "abc"},
		"/apis/example.org/v1/widgets:":                            {refused: true},
		"/apis/example.org/v1/widgets:a:b":                         {identity: "a:b"},
	} {
		r := httptest.NewRequest("GET", path, nil)
		info, err := resolver.NewRequestInfo(r)
		if err != nil || info.Resource != "widgets" || info.Subresource != want.subresource {
			t.Errorf("%s: %+v, %v", path, info, err)
			continue
		}
		narrowed, ok := withNamedIdentity(r, info)
		if identity, _ := identityFrom(narrowed.Context()); ok == want.refused || identity != want.identity {
			t.Errorf("%s: identity %q, %t", path, identity, ok)
		}
		for name, within := range map[string]bool{"a view": true, "an identity": false} {
			ctx := WithIdentity(r.Context(), "mine")
			if within {
				ctx = WithView(r.Context(), "view")
			}
			if _, ok := withNamedIdentity(r.WithContext(ctx), info); ok && (want.identity != "" || want.refused) {
				t.Errorf("%s: a request for %s names another identity", path, name)
			}
		}
	}
}
