package path

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// served are the first segments of the paths that a logical cluster serves: its APIs, their descriptions, and paths that clients request
// from any server.
var served = map[string]bool{
	"": true, "api": true, "apis": true, "openapi": true, "version": true, "healthz": true, "livez": true, "readyz": true,
	".well-known": true, "openid": true,
}

// WithoutServer refuses requests in the context of a logical cluster, including views, for paths of the server itself: an administrator of
// one logical cluster may get every path there, but must not get profiles, metrics and settings of the process. s encodes the errors.
func WithoutServer(api http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if _, inCluster := logicalcluster.From(r.Context()); inCluster && !served[first] {
			err := notFound(r.URL.Path + " is not a path of a logical cluster")
			responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}
