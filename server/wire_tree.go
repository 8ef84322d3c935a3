package server

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/request/expectation"
	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// serveTree makes this shard answer front proxies where logical clusters are.
func (i *installation) serveTree(ctx context.Context) {
	set, stored := i.tenancy.set, i.tenancy.stored
	tree.NewSource(tree.Config{
		Shard: i.opts.ShardName, Incarnation: i.incarnation, Workspaces: set.Workspaces, Clusters: set.LogicalClusters,
		Shards: i.knownShards, Progress: i.backend.Progress, Stopping: ctx.Done(), Clock: clock.RealClock{},
	}).Register(i.calls)
	i.places = tree.NewPlaces(tree.PlacesConfig{
		Shard: i.opts.ShardName, Incarnation: i.incarnation, Workspaces: set.Workspaces, Clusters: set.LogicalClusters,
		StoredWorkspaces: stored["workspaces"], StoredClusters: stored["logicalclusters"], Revision: i.backend.Revision, Holder: i.holders.Holder,
		Fenced: i.fenced,
	})
	i.places.Register(i.calls)
}

// knownShards returns the Shards in root, as far as this shard knows them.
func (i *installation) knownShards() []tree.Shard {
	known, err := i.tenancy.set.Shards.List(logicalcluster.Root)
	if err != nil {
		return nil
	}
	shards := make([]tree.Shard, 0, len(known))
	for _, s := range known {
		shards = append(shards, tree.Shard{
			Name: s.Name, BaseURL: s.Spec.BaseURL, Incarnation: s.Annotations[corev1alpha1.IncarnationAnnotation],
		})
	}
	return shards
}

// shardNames returns the names of the shards.
func (i *installation) shardNames() []string {
	var names []string
	for _, s := range i.knownShards() {
		names = append(names, s.Name)
	}
	return names
}

// withMarkers refuses the requests that front proxies send to the wrong shard.
func (i *installation) withMarkers(next http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	if i == nil {
		return next
	}
	return expectation.Config{Places: i.places, Caller: i.calls.Caller, Serializer: s}.WithMarkers(next)
}
