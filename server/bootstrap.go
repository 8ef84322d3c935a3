package server

import (
	"context"

	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/options"
	"github.com/kcplane/kcp/server/root"
)

var rootCluster = logicalcluster.Cluster{Name: logicalcluster.Root}

// bootstrap makes what every installation has.
func (c *config) bootstrap(ctx context.Context) error {
	shard := root.Shard{
		Name: c.opts.ShardName, BaseURL: c.opts.ShardBaseURL, ExternalURL: c.opts.ShardExternalURL, VirtualWorkspaceURL: c.opts.ShardVirtualWorkspaceURL,
	}
	var homeCreators []string
	if c.opts.Homes.Enabled {
		homeCreators = c.opts.Homes.CreatorGroups
	}
	system := root.System{Definitions: c.systemDefinitions, Exports: c.exports.System()}
	if err := root.Bootstrap(ctx, c.dynamic, shard, system, c.opts.Batteries, homeCreators); err != nil {
		return err
	}
	if c.opts.Batteries.Has(options.BatteryMetricsViewer) {
		return c.bootstrapMetricsViewer(logicalcluster.WithName(ctx, logicalcluster.Root))
	}
	return nil
}
