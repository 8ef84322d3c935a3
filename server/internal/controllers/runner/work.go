package runner

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// patience is how long an item has a worker for itself. Admission and conversion call hosts of tenants, which may answer late or never:
	// after that, another worker takes the place.
	patience = 200 * time.Millisecond
	// slowOfPayer is how many such items of one payer there are at a time, slowOfAll of all payers. The next items of the payer wait for
	// slowPause. Beyond slowOfAll workers are replaced later: an etcd that is slow makes all items slow.
	slowOfPayer, slowOfAll = 8, 64
	slowPause              = time.Second
)

// Payer returns who pays for a logical cluster.
type Payer func(logicalcluster.Name) string

type payerKey struct{}

// WithPayer returns a context for Run, in which the slow items of all clusters that one pays for count together. Without it each
// cluster pays for itself.
func WithPayer(ctx context.Context, payer Payer) context.Context {
	return context.WithValue(ctx, payerKey{}, payer)
}

func payerFrom(ctx context.Context) Payer {
	if payer, ok := ctx.Value(payerKey{}).(Payer); ok {
		return payer
	}
	return func(cluster logicalcluster.Name) string { return string(cluster) }
}

// Work takes the items of a queue until ctx ends, and returns when the last one is done. Items that take long hold up no items of others,
// except in a queue with one worker, whose items are done one after the other.
func Work[T comparable](
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], workers int, clusterOf func(T) logicalcluster.Name,
	do func(context.Context, T),
) {
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	p := &pool[T]{queue: queue, clusterOf: clusterOf, do: do, payer: payerFrom(ctx), replaces: workers > 1, slow: map[string]int{}}
	for range workers {
		p.running.Go(func() { p.work(ctx) })
	}
	p.running.Wait()
}

// pool is the workers of a queue.
type pool[T comparable] struct {
	queue     workqueue.TypedRateLimitingInterface[T]
	clusterOf func(T) logicalcluster.Name
	do        func(context.Context, T)
	payer     Payer
	replaces  bool
	running   sync.WaitGroup

	mu   sync.Mutex
	slow map[string]int // how many items of a payer have a worker that was replaced
	all  int
}

// work does items until the queue is shut down, or another worker has taken the place of this one.
func (p *pool[T]) work(ctx context.Context) {
	for replaced := false; !replaced; {
		item, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		replaced = p.one(ctx, item)
	}
}

// one does an item, and returns whether the worker was replaced.
func (p *pool[T]) one(ctx context.Context, item T) (replaced bool) {
	defer p.queue.Done(item)
	if p.full(item) {
		p.queue.AddAfter(item, slowPause)
		return false
	}
	if !p.replaces {
		p.do(ctx, item)
		return false
	}
	ended, payer := false, ""
	var timer *time.Timer
	replace := func() {
		paidBy := p.payer(p.clusterOf(item))
		p.mu.Lock()
		defer p.mu.Unlock()
		if ended {
			return
		}
		if p.all == slowOfAll {
			timer.Reset(patience)
			return
		}
		p.all++
		p.slow[paidBy]++
		replaced, payer = true, paidBy
		p.running.Go(func() { p.work(ctx) })
	}
	p.mu.Lock()
	timer = time.AfterFunc(patience, replace)
	p.mu.Unlock()
	defer func() {
		timer.Stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		if ended = true; !replaced {
			return
		}
		p.all--
		if p.slow[payer]--; p.slow[payer] == 0 {
			delete(p.slow, payer)
		}
	}()
	p.do(ctx, item)
	return
}

// full returns whether the payer of an item has as many slow ones as there may be.
func (p *pool[T]) full(item T) bool {
	p.mu.Lock()
	none := p.all == 0
	p.mu.Unlock()
	if none {
		return false
	}
	payer := p.payer(p.clusterOf(item))
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow[payer] >= slowOfPayer
}
