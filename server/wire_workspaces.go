package server

import (
	"context"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/controllers/workspace"
	"github.com/kcplane/kcp/server/internal/controllers/workspacereport"
	"github.com/kcplane/kcp/server/internal/request/home"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/workspaces"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// scheduleElsewhere lets Workspaces of this shard have logical clusters on other shards, and those of other shards have them here.
func (i *installation) scheduleElsewhere() error {
	t := i.tenancy
	calls := workspaces.New(workspaces.Config{
		Scheduler: t.scheduler, Clusters: t.stored["logicalclusters"], Workspaces: t.stored["workspaces"], Tombstones: i.backend.Tombstones(),
		Holder: i.holders.Holder, Left: i.left, MovedTo: i.movedTo, Quarantined: i.quarantined, Clients: i.clients, Clock: clock.RealClock{},
	})
	calls.Serve(i.calls)
	i.workspaces = calls
	t.scheduler.Placement = scheduling.Placement(i.opts.Sharding.Placement)
	t.scheduler.Answers, t.scheduler.Remote, t.scheduler.Stored = i.clients.Answers, calls, t.stored["workspaces"]
	var err error
	i.orphans, err = workspacereport.RegisterOrphans(legacyregistry.Register)
	return err
}

// share makes all shards hold homes. The root shard decides which one.
func (i *installation) share(homes *home.Homes) {
	switch {
	case i == nil:
	case i.registry != nil:
		homes.Records = i.tenancy.stored["workspaces"]
		peers.Handle(i.calls, home.Call, []peers.Kind{peers.Shard}, homes.Serve)
	default:
		homes.Ask = home.AskRoot(i.clients)
	}
}

// left reports whether another shard holds a cluster of which this shard has a LogicalCluster.
func (i *installation) left(ctx context.Context, cluster logicalcluster.Name) (bool, error) {
	fence, _, err := i.backend.Fence(ctx, cluster)
	return fence != nil && fence.State != storage.FenceLeaving, err
}

// movedTo returns the shard to which a cluster has moved from this one; empty if that is not so.
func (i *installation) movedTo(ctx context.Context, cluster logicalcluster.Name) (string, error) {
	fence, _, err := i.backend.Fence(ctx, cluster)
	if err != nil || fence == nil || fence.State != storage.FenceMoved {
		return "", err
	}
	return fence.Shard, nil
}

// betweenShards returns the controllers that report to other shards what their Workspaces show.
func (c controllers) betweenShards() []runnable {
	i := c.installation
	if i == nil {
		return nil
	}
	in := workspacereport.Inputs{
		Set: c.set, Calls: i.workspaces, Clusters: c.stored["logicalclusters"], ShardName: i.opts.ShardName, Orphans: i.orphans,
	}
	changes := workspacereport.New(in)
	in.Changes = changes
	return []runnable{changes, workspacereport.NewComparer(in), i.migrationController(c.set)}
}

// leftFunc returns left, and nil for a single shard.
func (i *installation) leftFunc() func(context.Context, logicalcluster.Name) (bool, error) {
	if i == nil {
		return nil
	}
	return i.left
}

// deleteElsewhere returns what deletes logical clusters on other shards, and nil for a single shard.
func (i *installation) deleteElsewhere() workspace.Delete {
	if i == nil {
		return nil
	}
	return i.workspaces.Delete
}
