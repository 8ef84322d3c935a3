package feed

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// compareInterval is how often everything in the cache server is compared.
	compareInterval = 10 * time.Minute
	// pingInterval is how often an idle shard checks whether the cache server still has its content.
	pingInterval = 15 * time.Second
	// minBackoff and maxBackoff limit the delay before a cache server that does not respond is tried again.
	minBackoff, maxBackoff = time.Second, 30 * time.Second
)

// follow compares everything at the start, when the cache server responds again or has lost its content, and every compareInterval, until
// ctx ends.
func (o *Offer) follow(ctx context.Context) {
	backoff, instance := minBackoff, ""
	var compared time.Time
	for ctx.Err() == nil {
		err := o.check(ctx, instance, compared)
		delay := pingInterval
		switch {
		case err != nil && ctx.Err() == nil:
			o.in.Metrics.failed()
			klog.FromContext(ctx).V(2).Info("The cache server does not accept what this shard offers, will retry", decisionlog.Error, err)
			delay, backoff = backoff, min(2*backoff, maxBackoff)
		case !o.isConnected():
			began, before := o.in.Clock.Now(), o.cache.Instance()
			if err := o.compare(ctx); err != nil {
				o.in.Metrics.failed()
				klog.FromContext(ctx).V(2).Info("Comparing with the cache server failed, will retry", decisionlog.Error, err)
				delay, backoff = backoff, min(2*backoff, maxBackoff)
				break
			}
			instance, compared, backoff = before, began, minBackoff
		}
		o.sleep(ctx, delay/2+rand.N(delay/2))
	}
}

// check sends a request to the cache server, and disconnects if it fails, if the content was lost or is not known, or if everything must be
// compared.
func (o *Offer) check(ctx context.Context, instance string, compared time.Time) error {
	err := o.cache.ping(ctx, o.clusters.resource)
	if err != nil || o.unsure.Load() || o.cache.Instance() != instance || o.in.Clock.Since(compared) >= compareInterval {
		o.comparing.Lock()
		defer o.comparing.Unlock()
		o.connected = false
	}
	return err
}

func (o *Offer) isConnected() bool {
	o.comparing.RLock()
	defer o.comparing.RUnlock()
	return o.connected
}

// sleep waits for a delay, or until a worker finds that the cache server does not respond.
func (o *Offer) sleep(ctx context.Context, delay time.Duration) {
	timer := o.in.Clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	case <-o.woken:
	}
}

// wake makes follow check the cache server now.
func (o *Offer) wake() {
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

// compare reads everything that the cache server has of this shard, in another round, and then compares every logical cluster.
func (o *Offer) compare(ctx context.Context) error {
	o.comparing.Lock()
	defer o.comparing.Unlock()
	term, err := o.in.Term(ctx)
	if err != nil {
		return err
	}
	if o.term == 0 {
		o.term = term
	}
	o.round++
	o.unsure.Store(false)
	if err := o.cache.begin(ctx, o.leader(), o.clusters.resource); err != nil {
		return err
	}
	found, selections, err := o.read(ctx)
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.known = found
	o.mu.Unlock()
	all := o.candidates(found)
	for cluster := range all { // before any is written: ancestors of what is offered stay offered
		content, _, _ := o.content(cluster)
		o.place(cluster, len(content) > 0)
	}
	o.connected = true
	o.comparisons++
	o.published.compared(selections)
	for cluster := range all {
		o.enqueue(cluster)
	}
	return nil
}

// leader returns this process, for requests to the cache server. comparing must be held.
func (o *Offer) leader() leader { return leader{o.in.Incarnation, o.term, o.round} }

// read returns everything that the cache server has of this shard, and the selections of the ClusterCachedResources in it.
func (o *Offer) read(ctx context.Context) (map[logicalcluster.Name]*written, map[informers.Key]selection, error) {
	found, selections := map[logicalcluster.Name]*written{}, map[informers.Key]selection{}
	for _, k := range slices.Concat(o.kinds, []*kind{o.clusters, o.workspaces}) {
		err := o.cache.list(ctx, o.in.Shard, k.resource, "*", func(u *unstructured.Unstructured) {
			cluster := logicalcluster.Of(u)
			if found[cluster] == nil {
				found[cluster] = &written{objects: map[id]*entry{}}
			}
			found[cluster].objects[id{k, u.GetName()}] = entryOf(u)
			found[cluster].offered++
			cached := &cachev1alpha1.ClusterCachedResource{}
			if k.name == "ClusterCachedResource" && runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cached) == nil {
				selections[informers.Key{Cluster: cluster, Name: cached.Name}] = selectionOf(cached)
			}
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return found, selections, nil
}

// candidates returns the clusters that may differ: those in the cache server, those with objects, and those that have changed.
func (o *Offer) candidates(found map[logicalcluster.Name]*written) map[logicalcluster.Name]bool {
	all := o.pending.clusters()
	for cluster := range found {
		all[cluster] = true
	}
	for _, k := range o.kinds {
		for _, cluster := range k.informer.LocalClusters() {
			all[cluster] = true
		}
	}
	return all
}

// entryOf returns an object of the cache server. Its content has a sum that nothing else has if it cannot be read.
func entryOf(u *unstructured.Unstructured) *entry {
	annotations := u.GetAnnotations()
	e := &entry{
		uid: u.GetUID(), version: u.GetResourceVersion(), incarnation: annotations[cacheserver.Incarnation],
		original: origin{uid: types.UID(annotations[cacheserver.OriginalUID]), version: annotations[cacheserver.OriginalResourceVersion],
			words: strings.Split(annotations[ReplicateAnnotation], ",")},
		term: version(annotations[cacheserver.LeaderTerm]),
	}
	if u.GetKind() == "ClusterRoleBinding" {
		binding := rbacv1.ClusterRoleBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &binding); err == nil {
			e.subjects = binding.Subjects
		}
	}
	if _, of, err := measure(u.Object); err == nil {
		e.sum = of
	}
	return e
}

// pending are the logical clusters with changes that are not offered yet.
type pending struct {
	clock clock.PassiveClock

	mu   sync.Mutex // guards what follows
	last uint64     // the number of the last change
	of   map[logicalcluster.Name]changes
}

// changes are the times of the first change that may not be offered yet, and the number of the last one.
type changes struct {
	first time.Time
	last  uint64
}

func newPending(clock clock.PassiveClock) *pending {
	return &pending{clock: clock, of: map[logicalcluster.Name]changes{}}
}

func (p *pending) add(cluster logicalcluster.Name) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	c, ok := p.of[cluster]
	if !ok {
		c.first = p.clock.Now()
	}
	c.last = p.last
	p.of[cluster] = c
}

// begin returns the number of the last change of a cluster.
func (p *pending) begin(cluster logicalcluster.Name) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[cluster].last
}

// done records that everything up to a change is offered. began is when reading the cluster began.
func (p *pending) done(cluster logicalcluster.Name, last uint64, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.of[cluster]; ok && c.last == last {
		delete(p.of, cluster)
	} else if ok {
		p.of[cluster] = changes{began, c.last}
	}
}

func (p *pending) clusters() map[logicalcluster.Name]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[logicalcluster.Name]bool, len(p.of))
	for cluster := range p.of {
		all[cluster] = true
	}
	return all
}

// lag returns the age of the oldest change that is not offered.
func (p *pending) lag() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, oldest := p.clock.Now(), time.Duration(0)
	for _, c := range p.of {
		oldest = max(oldest, now.Sub(c.first))
	}
	return oldest
}
