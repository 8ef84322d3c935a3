package server

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
)

func TestAViewServesNoBuiltInTypes(t *testing.T) {
	s := &served{builtin: sets.New(schema.GroupResource{Resource: "secrets"})}
	for _, test := range []struct {
		resource       string
		inView, custom bool
	}{
		{"secrets", false, false}, {"secrets", true, true}, {"widgets", false, true}, {"widgets", true, true},
	} {
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, Resource: test.resource})
		if test.inView {
			ctx = customresources.WithView(ctx, customresources.ViewOf("provider", "export"))
		}
		if got := s.isCustom(ctx); got != test.custom {
			t.Errorf("%+v: got %t", test, got)
		}
	}
}
