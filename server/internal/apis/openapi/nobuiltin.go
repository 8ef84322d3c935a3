package openapi

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/kube-openapi/pkg/handler3"
)

// NoBuiltIn is the next handler of WithOpenAPI for views without built-in types: its documents are empty.
var NoBuiltIn http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != pathV3 {
		notDescribed(w, r)
		return
	}
	responsewriters.WriteRawJSON(http.StatusOK, handler3.OpenAPIV3Discovery{}, w)
})
