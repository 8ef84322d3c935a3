package path

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// served are the first segments of what a logical cluster serves: its APIs, what describes them, and what clients ask of
// any server.
var served = map[string]bool{
	"": true, "api": true, "apis": true, "openapi": true, "version": true, "healthz": true, "livez": true, "readyz": true,
	".well-known": true, "openid": true,
}

// WithoutServer keeps requests in the context of a logical cluster, views included, away from what api serves of the server
// itself: profiles, metrics and switches of the whole process are nothing that an administrator of one cluster, who may
// get every path there, may have. s encodes the errors.
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
