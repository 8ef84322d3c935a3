package server

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/views/apiexport"
	"github.com/kcplane/kcp/server/internal/views/apiresourceschema"
	"github.com/kcplane/kcp/server/internal/views/endpoints"
	"github.com/kcplane/kcp/server/internal/views/lifecycle"
	"github.com/kcplane/kcp/server/internal/views/replication"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/options"
	"github.com/kcplane/kcp/server/virtual"
)

// newViews returns the virtual workspaces of the server by name, and the virtual workspace of slices of cached resources.
func newViews(tenancy *tenancy, authz *authz, served *served) (virtual.Views, replication.Config, error) {
	slices := replication.Config{
		Cached: tenancy.cached, Exports: tenancy.exports, References: tenancy.references, Authorizer: authz.inCluster,
		Offers:    func(view logicalcluster.Name) []customresources.Installed { return served.custom.List(view) },
		Documents: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { served.sliceDocuments.ServeHTTP(w, r) }),
	}
	views, err := lifecycle.Views(lifecycle.Config{Set: tenancy.set, References: tenancy.references, Authorizer: authz.inCluster})
	if err != nil {
		return nil, slices, err
	}
	views[replication.Name] = slices.Find
	views[apiexport.Name] = apiexport.Config{
		Exports: tenancy.exports, References: tenancy.references, Authorizer: authz.inCluster, Rules: authz.rules,
		Offers: func(view logicalcluster.Name, resource schema.GroupResource) bool {
			return served.custom.Serves(view, resource)
		},
		Documents: served.current(func() http.Handler { return served.exportDocuments }),
	}.Find
	views[apiresourceschema.Name], err = apiresourceschema.Config{
		Stored: tenancy.stored["apibindings"], Schemas: tenancy.set.APIResourceSchemas, Kept: tenancy.stored["apiresourceschemas"],
		Authorizer: authz.inCluster,
	}.Find()
	return views, slices, err
}

// newEndpoints returns the client of virtual workspaces that providers run. Other shards ask it for the slices of this shard.
func newEndpoints(opts options.Completed, tenancy *tenancy, clients *clients, served *served,
	shared *installation) (*endpoints.Endpoints, error) {
	o := opts.VirtualStorage
	var allowed []endpoints.Allowed
	for _, text := range o.Endpoints {
		a, err := endpoints.ParseAllowed(text)
		if err != nil {
			return nil, fmt.Errorf("--virtual-storage-endpoints: %w", err)
		}
		allowed = append(allowed, a)
	}
	e, err := endpoints.New(endpoints.Config{
		Allowed: allowed, Files: o.Files, Elsewhere: shared.slicesElsewhere(),
		Is: tenancy.tree.Is, Exports: tenancy.set.APIExports.List, Dynamic: clients.dynamic, RESTMapper: served.restMapper,
		IsVirtual: func(cluster logicalcluster.Name, resource schema.GroupResource) bool {
			return served.custom.IsVirtual(cluster, resource)
		},
		ShardLabels: func() labels.Set {
			shard, err := tenancy.set.Shards.Get(logicalcluster.Root, "", opts.ShardName)
			if err != nil {
				return nil
			}
			return shard.Labels
		},
	})
	if err == nil {
		shared.answerSlices(e)
	}
	return e, err
}
