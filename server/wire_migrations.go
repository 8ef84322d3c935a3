package server

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/controllers/logicalclustermigration"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/shards/migration"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// migrations are the parts that move logical clusters to this shard, and from it.
type migrations struct {
	destination *migration.Destination
	// reports is nil unless this shard is the root shard.
	reports *migration.Reports
	// holdings lists what shards hold.
	holdings *migration.Holdings
}

// moveClusters lets other shards take over logical clusters of this one, and this one those of others.
func (i *installation) moveClusters(g *genericapiserver.Config, signers *authentication.Signers) {
	t, name := i.tenancy, i.opts.ShardName
	copies := i.backend.Copies(transformersOf(g))
	accepts := migration.AcceptsFrom(t.set.LogicalClusterMigrations)
	parents := &migration.Parents{
		Shard: name, Clients: i.clients, Workspaces: t.stored["workspaces"], OwnerShard: i.workspaces.OwnerShard, Accepts: accepts,
	}
	preparer := &migration.Preparer{
		Shard: name, Version: Version(), Copies: copies, Clusters: t.stored["logicalclusters"], Set: t.set, Ancestors: t.tree.Ancestors,
		Accepts: accepts, Describe: func(lc *corev1alpha1.LogicalCluster) error {
			keys, err := signers.AddTo(lc.Annotations[tenancyv1alpha1.SignersAnnotation])
			lc.Annotations[tenancyv1alpha1.SignersAnnotation] = keys
			return err
		},
	}
	signers.Former = i.formerSigners
	origin := &migration.Origin{
		Shard: name, Store: i.backend, Copies: copies, Records: parents.OriginRecords(i.backend, copies), Accepts: accepts,
		Leave: preparer.DescribeChildren,
	}
	t.scheduler.MakeRoom = (&migration.Homes{Parents: parents, Store: i.backend, Copies: copies}).MakeRoom
	parents.Serve(i.calls)
	preparer.Serve(i.calls)
	origin.Serve(i.calls)
	i.migrations = &migrations{destination: &migration.Destination{
		Shard: name, Version: Version(), Store: i.backend, Copies: copies, Parents: parents, Clients: i.clients, Shards: i.shardNames,
		Clock: clock.RealClock{}, Arrive: func(annotations map[string]string) {
			if keys := annotations[tenancyv1alpha1.SignersAnnotation]; keys != "" {
				annotations[tenancyv1alpha1.SignersAnnotation] = signers.Arrive(keys)
			}
		},
	}, holdings: &migration.Holdings{Shard: name, Set: t.set, Parents: parents, Clients: i.clients, Path: t.tree.Path}}
	i.migrations.holdings.Serve(i.calls)
	if i.opts.Sharding.IsRoot() {
		i.migrations.reports = &migration.Reports{Migrations: t.stored["logicalclustermigrations"]}
		i.migrations.reports.Serve(i.calls)
	}
}

// transformersOf returns the encryption of stored values.
func transformersOf(g *genericapiserver.Config) storage.Transformers {
	return func(resource schema.GroupResource) (value.Transformer, error) {
		if g.ResourceTransformers == nil {
			return nil, nil
		}
		return g.ResourceTransformers.TransformerForResource(resource), nil
	}
}

// isUnread reports whether informers do not have a logical cluster that arrived at a revision: its users would be refused.
func (i *installation) isUnread(arrived int64) bool {
	if arrived == 0 {
		return false
	}
	for _, informer := range append(i.tenancy.decisive(), i.tenancy.set.CustomResourceDefinitions.Informer) {
		if informer.Version() < uint64(arrived) {
			return true
		}
	}
	return false
}

// formerSigners returns the public keys of the shards that held a logical cluster of this shard before, in PEM.
func (i *installation) formerSigners(cluster logicalcluster.Name) string {
	lc, err := i.tenancy.set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return ""
	}
	return lc.Annotations[tenancyv1alpha1.SignersAnnotation]
}

// reportMigration reports the state of a migration to the root shard, which can be this one.
func (i *installation) reportMigration(ctx context.Context, in migration.Report) (*migrationv1alpha1.LogicalClusterMigration, error) {
	if reports := i.migrations.reports; reports != nil {
		return reports.Show(ctx, peers.Identity{Kind: peers.Shard, Name: peers.Root}, in)
	}
	return migration.Send(ctx, i.clients, in)
}

// migrationController returns the controller that moves logical clusters to this shard.
func (i *installation) migrationController(set *informers.Set) runnable {
	return logicalclustermigration.New(logicalclustermigration.Inputs{
		Set: set, ShardName: i.opts.ShardName, Destination: i.migrations.destination, Report: i.reportMigration, Clock: clock.RealClock{},
	})
}

// isMoving reports whether controllers must wait for a logical cluster: it is moving, or informers do not have all of its objects.
func (i *installation) isMoving(cluster logicalcluster.Name) bool {
	fence, ok := i.backend.Fenced(cluster)
	if ok {
		return fence.State != storage.FenceMoved
	}
	arrived := i.backend.Arrived(cluster)
	return arrived != 0 && i.tenancy.informers.Oldest() < uint64(arrived)
}

// fenced reports whether a logical cluster is moving, and where it was moved to.
func (i *installation) fenced(cluster logicalcluster.Name) (moving bool, to string, epoch uint64) {
	fence, ok := i.backend.Fenced(cluster)
	switch {
	case !ok:
		return i.isUnread(i.backend.Arrived(cluster)), "", 0
	case fence.State == storage.FenceMoved:
		return false, fence.Shard, fence.Epoch
	}
	return true, "", 0
}

// withHoldings serves what the shards hold, on the root shard.
func (i *installation) withHoldings(next http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	if i == nil || !i.opts.Sharding.IsRoot() {
		return next
	}
	return i.migrations.holdings.WithHoldings(next, s)
}
