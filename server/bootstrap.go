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

// bootstrap creates the objects of every installation.
func (s *server) bootstrap(ctx context.Context) error {
	shard := bootstrap.Shard{
		Name: s.opts.ShardName, BaseURL: s.opts.ShardBaseURL, ExternalURL: s.opts.ShardExternalURL,
		VirtualWorkspaceURL: s.opts.ShardVirtualWorkspaceURL, HasOthers: s.opts.Sharding.Enabled(),
	}
	var homeCreators []string
	if s.opts.Homes.Enabled {
		homeCreators = s.opts.Homes.CreatorGroups
	}
	system := bootstrap.System{Definitions: s.tenancy.systemDefinitions, Exports: s.tenancy.exports.System()}
	if err := bootstrap.Bootstrap(ctx, s.clients.dynamic, shard, system, s.opts.Batteries, homeCreators); err != nil {
		return err
	}
	if s.opts.Batteries.Has(options.BatteryMetricsViewer) {
		return s.bootstrapMetricsViewer(logicalcluster.WithName(ctx, logicalcluster.Root))
	}
	return nil
}

// fullInterval is the time between attempts to bootstrap while the storage is full.
const fullInterval = 5 * time.Second

// bootstrapWithRoom bootstraps when the storage has room for the missing objects. Until then, the server serves the existing objects.
func (s *server) bootstrapWithRoom(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, fullInterval, true, func(ctx context.Context) (bool, error) {
		err := s.bootstrap(ctx)
		if apierrors.ReasonForError(err) == storage.StatusReasonInsufficientStorage {
			klog.FromContext(ctx).Error(err, "Creating the objects of every installation failed because the storage is full, will retry")
			s.tenancy.informers.Fill() // until there is room, the server serves what exists
			return false, nil
		}
		return err == nil, err
	})
}
