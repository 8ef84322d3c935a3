package server

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/bootstrap"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/options"
)

var rootCluster = logicalcluster.Cluster{Name: logicalcluster.Root}

// bootstrap makes what every installation has.
func (c *config) bootstrap(ctx context.Context) error {
	shard := bootstrap.Shard{
		Name: c.opts.ShardName, BaseURL: c.opts.ShardBaseURL, ExternalURL: c.opts.ShardExternalURL, VirtualWorkspaceURL: c.opts.ShardVirtualWorkspaceURL,
	}
	var homeCreators []string
	if c.opts.Homes.Enabled {
		homeCreators = c.opts.Homes.CreatorGroups
	}
	system := bootstrap.System{Definitions: c.systemDefinitions, Exports: c.exports.System()}
	if err := bootstrap.Bootstrap(ctx, c.dynamic, shard, system, c.opts.Batteries, homeCreators); err != nil {
		return err
	}
	if c.opts.Batteries.Has(options.BatteryMetricsViewer) {
		return c.bootstrapMetricsViewer(logicalcluster.WithName(ctx, logicalcluster.Root))
	}
	return nil
}

// fullInterval is how often a bootstrap is tried that there is no room for.
const fullInterval = 5 * time.Second

// bootstrapWithRoom bootstraps once the storage has room for what is missing. Until then the server serves what is there.
func (c *config) bootstrapWithRoom(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, fullInterval, true, func(ctx context.Context) (bool, error) {
		err := c.bootstrap(ctx)
		if apierrors.ReasonForError(err) == storage.StatusReasonInsufficientStorage {
			klog.FromContext(ctx).Error(err, "The storage is full, objects that every installation has are missing")
			return false, nil
		}
		return err == nil, err
	})
}
