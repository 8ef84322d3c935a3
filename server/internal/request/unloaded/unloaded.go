// Package unloaded refuses requests for APIs of providers on other shards while this shard does not have what the providers enforce.
package unloaded

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Check returns an error for clients if a resource of a cluster must not be served.
type Check func(cluster logicalcluster.Name, resource schema.GroupResource) error

// WithRefusal refuses requests for resources that check returns an error for, which s encodes. It needs only the cluster in the context:
// without the policy of the provider, authorization could not decide. own recognizes requests of the server itself, which no provider
// limits.
func WithRefusal(next http.Handler, check Check, infos request.RequestInfoResolver, own func(*http.Request) bool,
	s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster, ok := logicalcluster.From(r.Context())
		if !ok || cluster.Wildcard || own(r) {
			next.ServeHTTP(w, r)
			return
		}
		info, err := infos.NewRequestInfo(r)
		if err != nil || !info.IsResourceRequest {
			next.ServeHTTP(w, r)
			return
		}
		if err := check(cluster.Name, schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}); err != nil {
			responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
