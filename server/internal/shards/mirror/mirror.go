// Package mirror has the objects that ClusterCachedResources of other shards publish, while clients of this shard read them.
package mirror

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual/resources"
)

const (
	// maxMirrors is how many publications are read at a time. maxObjects and maxBytes limit what is kept of each, as shards do that offer
	// them; maxAllBytes limits all of them.
	maxMirrors  = 256
	maxObjects  = 5000
	maxBytes    = 64 << 20
	maxAllBytes = 1 << 30
	// share is the part of the publications and of the bytes that those of one payer may have.
	share = 8
	// idle is how long a mirror stays without a reader, and sweepInterval how often that is checked.
	idle, sweepInterval = 5 * time.Minute, time.Minute
)

// Mirrors are the publications that clients of this shard read.
//
// Invariants:
//   - A publication is followed from its first read until nothing has read or watched it for some minutes.
//   - What was read stays in use while the cache server does not respond.
//   - A change of the cache server's instance ends all watches: resource versions of one instance mean nothing in another.
//   - The publications of one payer take at most a share, so that those of others are read in any case.
type Mirrors struct {
	config *rest.Config
	client *http.Client
	clock  clock.WithTicker
	stop   context.Context
	payer  func(logicalcluster.Name) string

	mu       sync.Mutex // guards what follows
	all      map[cachedresources.Publication]*follower
	accounts map[string]*account // those with publications
	current  string              // instance of the cache server

	bytes atomic.Int64 // of all objects
}

// account is what the publications of one payer take.
type account struct {
	payer     string
	followers int // guarded by Mirrors.mu
	bytes     atomic.Int64
}

// New returns mirrors, which end with stop. config has the URL of the cache server and the certificate of this shard, payer returns who
// pays for the publications of a cluster.
func New(stop context.Context, config *rest.Config, c clock.WithTicker, payer func(logicalcluster.Name) string) (*Mirrors, error) {
	m := &Mirrors{clock: c, stop: stop, payer: payer, all: map[cachedresources.Publication]*follower{}, accounts: map[string]*account{}}
	m.config = rest.CopyConfig(config)
	m.config.QPS = -1 // the cache server limits each shard
	m.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return instances{next, m} })
	var err error
	if m.client, err = rest.HTTPClientFor(m.config); err != nil {
		return nil, fmt.Errorf("creating a client of the cache server: %w", err)
	}
	return m, nil
}

// instances observes the instance of the cache server that responds.
type instances struct {
	http.RoundTripper
	mirrors *Mirrors
}

// RoundTrip implements http.RoundTripper.
func (i instances) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := i.RoundTripper.RoundTrip(r)
	if err == nil {
		i.mirrors.responded(response.Header.Get(cacheserver.InstanceHeader))
	}
	return response, err
}

func (m *Mirrors) responded(instance string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if instance == "" || instance == m.current {
		return
	}
	replaced := m.current != ""
	m.current = instance
	if replaced {
		for _, f := range m.all {
			f.again()
		}
	}
}

// Options returns the storage of the objects of a publication.
func (m *Mirrors) Options(p cachedresources.Publication) generic.RESTOptionsGetter {
	return resources.Options(func(ctx context.Context, _ string) (resources.Objects, error) {
		f, err := m.follow(p)
		if err != nil {
			return nil, err
		}
		return objects{follower: f}, f.filled(ctx)
	})
}

// follow returns the follower of a publication, which it starts if there is none.
func (m *Mirrors) follow(p cachedresources.Publication) (*follower, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.all[p]; f != nil {
		f.use(m.clock.Now())
		return f, nil
	}
	payer := m.payer(p.Cluster)
	if of := m.accounts[payer]; of != nil && of.followers >= maxMirrors/share && !m.makeRoom(of) {
		return nil, apierrors.NewTooManyRequests("too many published resources of this provider are in use on this shard: retry the request", 5)
	}
	if len(m.all) >= maxMirrors && !m.makeRoom(nil) {
		return nil, apierrors.NewTooManyRequests("too many published resources of other shards are in use on this shard: retry the request", 5)
	}
	client, err := m.reader(p)
	if err != nil {
		return nil, err
	}
	f := newFollower(client, m, m.open(payer), p.Resource.GroupVersion().WithKind(p.Kind))
	f.use(m.clock.Now())
	ctx, cancel := context.WithCancel(m.stop)
	f.cancel = cancel
	m.all[p] = f
	go f.run(ctx)
	go m.sweep(ctx, p, f)
	return f, nil
}

// reader returns a client of the part of the cache server that has a publication.
func (m *Mirrors) reader(p cachedresources.Publication) (dynamic.ResourceInterface, error) {
	config := rest.CopyConfig(m.config)
	config.Host = strings.TrimSuffix(config.Host, "/") + "/shards/" + p.Shard + "/clusters/" + string(p.Cluster)
	client, err := dynamic.NewForConfigAndClient(config, m.client)
	if err != nil {
		return nil, err
	}
	resource := p.Resource
	resource.Resource += ":" + p.Identity
	return client.Resource(resource), nil
}

// open returns the account of a payer with one publication more. The caller holds mu.
func (m *Mirrors) open(payer string) *account {
	of := m.accounts[payer]
	if of == nil {
		of = &account{payer: payer}
		m.accounts[payer] = of
	}
	of.followers++
	return of
}

// makeRoom ends the mirror that was unused for the longest time, of an account unless that is nil, and reports whether there was one. The
// caller holds mu.
func (m *Mirrors) makeRoom(of *account) bool {
	var oldest cachedresources.Publication
	var since time.Time
	for p, f := range m.all {
		if of != nil && f.account != of {
			continue
		}
		if at, unused := f.unusedSince(); unused && (since.IsZero() || at.Before(since)) {
			oldest, since = p, at
		}
	}
	if since.IsZero() {
		return false
	}
	m.end(oldest)
	return true
}

// end ends a mirror. The caller holds mu.
func (m *Mirrors) end(p cachedresources.Publication) {
	f := m.all[p]
	delete(m.all, p)
	f.cancel()
	m.reserve(f.account, -f.drop())
	if f.account.followers--; f.account.followers == 0 {
		delete(m.accounts, f.account.payer)
	}
}

// sweep ends a mirror when it is idle.
func (m *Mirrors) sweep(ctx context.Context, p cachedresources.Publication, f *follower) {
	ticker := m.clock.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if m.endIfIdle(p, f) {
			return
		}
		f.retry()
	}
}

func (m *Mirrors) endIfIdle(p cachedresources.Publication, f *follower) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, unused := f.unusedSince()
	if m.all[p] != f || !unused || m.clock.Since(since) < idle {
		return m.all[p] != f
	}
	m.end(p)
	return true
}

// reserve counts more bytes of an account, and reports whether there is room for them.
func (m *Mirrors) reserve(of *account, more int64) bool {
	all, ofPayer := m.bytes.Add(more), of.bytes.Add(more)
	if more > 0 && (all > maxAllBytes || ofPayer > maxAllBytes/share) {
		m.bytes.Add(-more)
		of.bytes.Add(-more)
		return false
	}
	return true
}

// Followed returns what is followed now, in order.
func (m *Mirrors) Followed() []cachedresources.Publication {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []cachedresources.Publication
	for p := range m.all {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b cachedresources.Publication) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all
}
