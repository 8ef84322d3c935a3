package server

import (
	"context"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/root"
)

var rootCluster = logicalcluster.Cluster{Name: logicalcluster.Root}

// bootstrap makes what every installation has.
func (c *config) bootstrap(ctx context.Context) error {
	shard := root.Shard{
		Name: c.opts.ShardName, BaseURL: c.opts.ShardBaseURL, ExternalURL: c.opts.ShardExternalURL, VirtualWorkspaceURL: c.opts.ShardVirtualWorkspaceURL,
	}
	return root.Bootstrap(ctx, c.dynamic, shard, sets.New("workspace-types", "admin"))
}
