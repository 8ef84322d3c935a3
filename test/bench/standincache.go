package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// fedChanges is the number of changes whose way to all shards is measured.
const fedChanges = 20

// feed measures a cache server from which all shards read what all offer.
func (r *standinsRun) feed(ctx context.Context) error {
	cache, err := r.begin(ctx, kcptest.User{Name: "admin", Groups: []string{"system:masters"}}, "cache-server",
		"--peer-client-ca-file="+r.pki.Peers.File, "--client-ca-file="+r.pki.Clients.File)
	if err != nil {
		return err
	}
	f := &fed{seed: maphash.MakeSeed()}
	var feeders []*feeder
	for _, s := range r.all.shards {
		feeder, err := newFeeder(r.pki, s.name, cache.config.Host, f)
		if err != nil {
			return err
		}
		feeders = append(feeders, feeder)
	}
	if err := r.offer(ctx, feeders); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	following, followed := errgroup.WithContext(ctx)
	defer func() {
		cancel()
		_ = following.Wait()
	}()
	if err := r.followAll(followed, following, cache, feeders, f); err != nil {
		return err
	}
	return errors.Join(r.idleCache(followed, cache, f), r.spread(followed, feeders, f))
}

// offer lets all shards offer their organizations, each with an export and its schema, and root where they are.
func (r *standinsRun) offer(ctx context.Context, feeders []*feeder) error {
	shards := len(feeders) - 1
	n := shards * organizationsEach
	l, err := count(ctx, makers, n, func(ctx context.Context, _, i int) error {
		shard, org := 1+i/organizationsEach, i%organizationsEach
		p := organizationAt(shard, org)
		f, spec := feeders[shard], specOf(p.cluster)
		return errors.Join(
			feeders[0].offer(ctx, http.MethodPost, rootShard, "tenancy.kcp.io/v1alpha1/workspaces", "Workspace", p.name, 1, spec),
			f.offer(ctx, http.MethodPost, p.cluster, "core.kcp.io/v1alpha1/logicalclusters", "LogicalCluster", "cluster", 1, spec),
			f.offer(
				ctx,
				http.MethodPost,
				p.cluster,
				"apis.kcp.io/v1alpha1/apiresourceschemas",
				"APIResourceSchema",
				"v1.parts.example.com",
				1,
				spec,
			),
			f.offer(ctx, http.MethodPost, p.cluster, "apis.kcp.io/v1alpha2/apiexports", "APIExport", "parts", 1, spec),
		)
	})
	r.add(
		row{What: fmt.Sprintf("cache server: %d organizations with an export offered by %d shards, 4 objects each", n, shards), Unit: "objects/s",
			Ours: 4 * l.perSecond},
	)
	return err
}

// specOf returns a specification of some hundred bytes, of which a compression leaves a part as of others.
func specOf(cluster string) map[string]any {
	spec := map[string]any{}
	for i := range 8 {
		hash := sha256.Sum256([]byte(fmt.Sprint(cluster, i)))
		spec[fmt.Sprintf("field%d", i)] = fmt.Sprintf("%s-%x", cluster, hash[:4*(i%4)])
	}
	return spec
}

// followAll lets all shards start at once.
func (r *standinsRun) followAll(ctx context.Context, group *errgroup.Group, cache *process, feeders []*feeder, f *fed) error {
	var open sync.WaitGroup
	open.Add(len(feeders) * len(fedKinds))
	before := cache.cpu()
	d, err := took(func() error {
		for _, feeder := range feeders {
			feeder.followAll(ctx, group, open.Done)
		}
		all := make(chan struct{})
		go func() {
			open.Wait()
			close(all)
		}()
		for {
			select {
			case <-all:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(10 * time.Second):
				progress("%d of %d watches are open, %d MiB read, the cache server has %.0f MiB", f.watches.Load(), len(feeders)*len(fedKinds),
					f.bytes.Load()>>20, cache.resident()/(1<<20))
			}
		}
	})
	r.add(
		row{What: fmt.Sprintf("cache server: all %d shards start at once, until each has read everything and watches", len(feeders)), Unit: "s",
			Ours: d.Seconds()},
		row{What: "bytes read by all of them", Unit: "MiB", Ours: float64(f.bytes.Load() >> 20)},
		row{What: "processor time of the cache server during that", Unit: "s", Ours: (cache.cpu() - before).Seconds()},
		row{
			What: fmt.Sprintf("resident memory of the cache server with %d watches", f.watches.Load()),
			Unit: "MiB",
			Ours: cache.resident() / (1 << 20),
		},
	)
	return err
}

// idleCache measures what bookmarks cost.
func (r *standinsRun) idleCache(ctx context.Context, cache *process, f *fed) error {
	before := f.bookmarks.Load()
	share, err := busyness(cache, func() error { return pause(ctx, idleFor) })
	each := float64(f.bookmarks.Load()-before) / idleFor.Seconds()
	r.add(row{What: fmt.Sprintf("processor time of the idle cache server, %.0f bookmarks a second", each), Unit: "%", Ours: share})
	return err
}

// spread measures how long a change takes until all shards have it.
func (r *standinsRun) spread(ctx context.Context, feeders []*feeder, f *fed) error {
	var all []time.Duration
	for i := range fedChanges {
		shard := 1 + rand.IntN(len(feeders)-1)
		want := f.heard.Load() + int64(len(feeders))
		d, err := took(func() error {
			err := feeders[shard].offer(ctx, http.MethodPost, organizationAt(shard, 0).cluster, "apis.kcp.io/v1alpha2/apiexports", "APIExport",
				fmt.Sprintf("measured-change-%d", i), 2, nil)
			for err == nil && f.heard.Load() < want {
				err = pause(ctx, time.Millisecond)
			}
			return err
		})
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	l := summarize(all, time.Second)
	r.add(
		limit(fmt.Sprintf("change of an export until all %d shards have it: p99 (p50 %s ms)", len(feeders), number(milliseconds(l.p50))), l.p99,
			500*time.Millisecond),
	)
	return nil
}
