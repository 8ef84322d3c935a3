package server

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/views/endpoints"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// newEndpoints makes what leads to the virtual workspaces of providers.
func (c *config) newEndpoints() (*endpoints.Endpoints, error) {
	o := c.opts.VirtualStorage
	var allowed []endpoints.Allowed
	for _, text := range o.Endpoints {
		a, err := endpoints.ParseAllowed(text)
		if err != nil {
			return nil, fmt.Errorf("--virtual-storage-endpoints: %w", err)
		}
		allowed = append(allowed, a)
	}
	return endpoints.New(endpoints.Config{
		Allowed: allowed, Files: o.Files,
		Path: c.tree.Path, Dynamic: c.dynamic, RESTMapper: c.restMapper,
		IsVirtual: func(cluster logicalcluster.Name, resource schema.GroupResource) bool {
			return c.custom.IsVirtual(cluster, resource)
		},
		ShardLabels: func() labels.Set {
			shard, err := c.set.Shards.Get(logicalcluster.Root, "", c.opts.ShardName)
			if err != nil {
				return nil
			}
			return shard.Labels
		},
	})
}
