package server

import (
	"context"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/request/unloaded"
	"github.com/kcplane/kcp/server/internal/shards/feed"
	"github.com/kcplane/kcp/server/internal/shards/mirror"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// reading is what this shard needs to read the objects that others offer.
type reading struct {
	reader *feed.Reader
	kept   *feed.Kept
	// mirrors have the objects that cached resources of other shards publish.
	mirrors *mirror.Mirrors
}

// newReading returns what this shard needs to read objects, and loads those that it has stored.
func (i *installation) newReading(ctx context.Context) (*reading, error) {
	config, err := i.cacheConfig()
	if err != nil {
		return nil, err
	}
	set := i.tenancy.set
	r := &reading{}
	if r.reader, err = feed.NewReader(feed.ReaderInputs{
		Set: set, Elsewhere: i.elsewhere, Shard: i.opts.ShardName, Cache: config, Clock: clock.RealClock{},
	}); err != nil {
		return nil, err
	}
	r.kept = feed.NewKept(feed.KeptInputs{
		Set: set, Elsewhere: i.elsewhere, Reader: r.reader, Exports: i.tenancy.exports, Tree: i.tenancy.tree, Store: i.backend.Kept(),
		Shards: i.allShards, Ask: i.ask, Clock: clock.RealClock{},
	})
	if r.mirrors, err = mirror.New(ctx, config, clock.RealClock{}, i.organizationOf); err != nil {
		return nil, err
	}
	i.tenancy.exports.Share(r.kept)
	peers.Handle(i.calls, feed.CallDeleted, []peers.Kind{peers.Shard}, i.answer)
	if err := feed.NewReadMetrics(i.opts.ShardName, r.reader, r.kept).Register(legacyregistry.CustomRegister); err != nil {
		return nil, err
	}
	return r, r.kept.Load(ctx)
}

// allShards returns the names of all shards.
func (i *installation) allShards() []string {
	names := i.shardNames()
	if !slices.Contains(names, i.opts.ShardName) {
		names = append(names, i.opts.ShardName)
	}
	return names
}

// ask asks a shard about an export.
func (i *installation) ask(ctx context.Context, shard string, export informers.Key) (feed.ExportAnswer, error) {
	in := feed.ExportQuestion{Cluster: export.Cluster, Export: export.Name}
	if shard == i.opts.ShardName {
		return i.answer(ctx, peers.Identity{Kind: peers.Shard, Name: shard}, in)
	}
	return peers.Call[feed.ExportQuestion, feed.ExportAnswer](ctx, i.clients, shard, feed.CallDeleted, in)
}

// answer answers a question about an export of this shard.
func (i *installation) answer(ctx context.Context, _ peers.Identity, q feed.ExportQuestion) (feed.ExportAnswer, error) {
	stored := i.tenancy.stored
	return feed.StoredExports{
		Moved: func(ctx context.Context, cluster logicalcluster.Name) (string, error) {
			fence, _, err := i.backend.Fence(ctx, cluster)
			switch {
			case err != nil || fence == nil:
				return "", err
			case fence.State == storage.FenceMoved:
				return fence.Shard, nil
			}
			return "", apierrors.NewServiceUnavailable("the logical cluster is being moved")
		},
		Cluster: func(ctx context.Context) error {
			return stored["logicalclusters"].Get(ctx, corev1alpha1.LogicalClusterName, &corev1alpha1.LogicalCluster{})
		},
		Export: func(ctx context.Context, name string) error {
			return stored["apiexports"].Get(ctx, name, &apisv1alpha2.APIExport{})
		},
	}.Answer(ctx, q)
}

// organizationOf returns the logical cluster below root that contains another one, as far as this shard knows it.
func (i *installation) organizationOf(cluster logicalcluster.Name) string {
	if above, ok := i.tenancy.tree.Ancestors(cluster); ok && len(above) > 1 {
		cluster = above[1]
	}
	return string(cluster)
}

// published is a customresources.Mirrors.
type published struct {
	*mirror.Mirrors
	installation *installation
}

// published returns the published objects of other shards, and nil for a single shard.
func (i *installation) published() customresources.Mirrors {
	if i == nil {
		return nil
	}
	return published{i.reading.mirrors, i}
}

// Holder returns the other shard that holds a cluster.
func (p published) Holder(cluster logicalcluster.Name) string {
	if p.installation.reading.reader.Here(cluster) {
		return ""
	}
	return p.installation.elsewhere.Holder(cluster)
}

// startReading reads what other shards offer until the hook ends.
func (s *server) startReading(hook genericapiserver.PostStartHookContext) {
	r := s.installation.reading
	s.background.Go(func() { r.reader.Run(hook) })
	s.background.Go(func() { r.kept.Follow(hook) })
}

// withLoaded refuses requests for bound APIs of other shards that are not loaded.
func (i *installation) withLoaded(next http.Handler, own func(*http.Request) bool, g *genericapiserver.Config) http.Handler {
	if i == nil {
		return next
	}
	return unloaded.WithRefusal(next, i.tenancy.exports.CheckLoaded, g.RequestInfoResolver, own, g.Serializer)
}
