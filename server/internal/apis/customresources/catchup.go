package customresources

import (
	"context"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// documentTimeout limits how long the documents of a cluster wait for events. Events may never arrive: if etcd does not
// respond, or if an API cannot be served. The documents then describe what is known.
const documentTimeout = time.Second

// CatchUp makes a request for discovery or OpenAPI wait until this server knows everything that was bound, unbound or
// exported before the request. It is needed because clients read an APIBinding from storage, while the documents of its
// cluster are built from events.
func (h *Handler) CatchUp(r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	cluster, found := logicalcluster.From(r.Context())
	if !ok || !found || cluster.Wildcard || info.IsResourceRequest || h.config.Versions == nil ||
		!(strings.HasPrefix(r.URL.Path, "/api") || strings.HasPrefix(r.URL.Path, "/openapi/")) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), documentTimeout)
	defer cancel()
	if provider, _, ok := ExportOf(cluster.Name); ok {
		h.catchUpWithExports(ctx, provider)
		return
	}
	h.catchUpWithBindings(ctx, cluster.Name)
}

// versionsIn returns a function that reads the resource versions of a resource in a cluster.
func (h *Handler) versionsIn(cluster logicalcluster.Name, resource schema.GroupResource) informers.Versions {
	return func(ctx context.Context) (map[string]uint64, uint64, error) {
		return h.config.Versions(logicalcluster.WithName(ctx, cluster), resource)
	}
}

// catchUpWithExports waits until the exports of a cluster are known.
func (h *Handler) catchUpWithExports(ctx context.Context, provider logicalcluster.Name) {
	if h.config.Exports.Await(ctx, provider, h.versionsIn(provider, apisv1alpha2.Resource("apiexports"))) == nil {
		_ = h.config.Schemas.Await(ctx, provider, h.versionsIn(provider, apisv1alpha1.Resource("apiresourceschemas")))
	}
}

// awaitBindings waits until the bindings of a cluster are known, as a request for its documents does.
func (h *Handler) awaitBindings(ctx context.Context, cluster logicalcluster.Name) {
	if h.config.Versions == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, documentTimeout)
	defer cancel()
	h.catchUpWithBindings(ctx, cluster)
}

// catchUpWithBindings waits until the bindings of a cluster are known, and their schemas, which were stored before.
func (h *Handler) catchUpWithBindings(ctx context.Context, cluster logicalcluster.Name) {
	if h.config.Bindings.Await(ctx, cluster, h.versionsIn(cluster, apisv1alpha2.Resource("apibindings"))) != nil {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, eventPoll, true, func(context.Context) (bool, error) { return h.hasSchemas(cluster), nil })
	h.config.Schemas.WaitForHandlers()
}

// hasSchemas reports whether the schemas of all bindings of a cluster are known.
func (h *Handler) hasSchemas(cluster logicalcluster.Name) bool {
	bindings, err := h.config.Bindings.List(cluster)
	if err != nil {
		return false
	}
	for _, b := range bindings {
		for u, bound := range usesOf(b) {
			if h.registry.system[u.key] != nil {
				continue
			}
			if _, err := h.config.Schemas.Get(logicalcluster.SystemBoundCRDs, "", bound.schema); err != nil {
				return false
			}
		}
	}
	return true
}
