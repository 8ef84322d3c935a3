package server

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/shards"
	"github.com/kcplane/kcp/server/internal/shards/feed"
	"github.com/kcplane/kcp/server/internal/storage"
)

// offering is what this shard needs to offer objects to others.
type offering struct {
	cache   *feed.Client
	metrics *feed.OfferMetrics
}

// newOffering returns what this shard needs to offer objects, and registers its metrics.
func (i *installation) newOffering() (*offering, error) {
	config, err := i.cacheConfig()
	if err != nil {
		return nil, err
	}
	o := &offering{metrics: feed.NewOfferMetrics(i.opts.ShardName)}
	if o.cache, err = feed.NewClient(config, i.opts.ShardName); err != nil {
		return nil, err
	}
	return o, o.metrics.Register(legacyregistry.Register, legacyregistry.CustomRegister)
}

// cacheConfig returns how this shard reaches the cache server: the URL in --cache-kubeconfig, or else the root shard, with the certificate
// of this shard unless the kubeconfig has another.
func (i *installation) cacheConfig() (*rest.Config, error) {
	s := i.opts.Sharding
	config := &rest.Config{Host: i.opts.ShardBaseURL, TLSClientConfig: trustOf(s, i.root)}
	switch {
	case s.CacheKubeconfig != "":
		var err error
		if config, err = outbound.Kubeconfig(s.CacheKubeconfig); err != nil {
			return nil, fmt.Errorf("--cache-kubeconfig: %w", err)
		}
	case !s.IsRoot():
		config.Host = i.root.Host
	}
	if config.CertFile == "" && len(config.CertData) == 0 {
		config.CertFile, config.KeyFile = s.ClientCert, s.ClientKey
	}
	if prefix := strings.TrimSuffix(cacheserver.Prefix, "/"); !strings.HasSuffix(strings.TrimSuffix(config.Host, "/"), prefix) {
		config.Host = strings.TrimSuffix(config.Host, "/") + prefix
	}
	config.Wrap(i.membership.Wrap)
	return config, nil
}

// id returns the ID of the installation; empty if this shard has not registered yet.
func (i *installation) id(ctx context.Context) string {
	if known := i.knownID.Load(); known != nil {
		return *known
	}
	id, err := i.backend.Record(ctx, shards.InstallationRecord)
	if err != nil || id == "" {
		return ""
	}
	i.knownID.Store(&id)
	return id
}

// offer returns what writes the objects of a set to the cache server, and nil on a single shard. Only the leader runs it.
func (i *installation) offer(set *informers.Set, clients *clients, objects *runner.ObjectEvents) *feed.Offer {
	if i == nil {
		return nil
	}
	stored := map[string]storage.Objects{}
	for resource, objects := range i.tenancy.stored {
		stored[resource] = objects
	}
	return feed.NewOffer(feed.Inputs{
		Set: set, Shard: i.opts.ShardName, Cache: i.offering.cache, Incarnation: i.incarnation, Term: i.term,
		Versions: func(ctx context.Context, resource schema.GroupResource) (map[string]uint64, uint64, error) {
			return i.backend.Versions(ctx, resource)
		},
		Dynamic: clients.dynamic, Objects: objects, Stored: stored,
		Limits: feed.Limits{Objects: feed.DefaultMaxObjects, Bytes: feed.DefaultMaxBytes}, Metrics: i.offering.metrics, Clock: clock.RealClock{},
	})
}

// term returns a number that is higher than that of every former leader: the revision of the store, which the change of the lease raises.
func (i *installation) term(ctx context.Context) (uint64, error) {
	revision, err := i.backend.Revision(ctx)
	return cmp.Or(revision, 1), err
}
