package server

import (
	"context"
	"net/http"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/request/unloaded"
	"github.com/kcplane/kcp/server/internal/shards/feed"
	"github.com/kcplane/kcp/server/internal/shards/mirror"
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
		Clock: clock.RealClock{},
	})
	if r.mirrors, err = mirror.New(ctx, config, clock.RealClock{}); err != nil {
		return nil, err
	}
	i.tenancy.exports.Share(r.reader)
	if err := feed.NewReadMetrics(i.opts.ShardName, r.reader, r.kept).Register(legacyregistry.CustomRegister); err != nil {
		return nil, err
	}
	return r, r.kept.Load(ctx)
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
