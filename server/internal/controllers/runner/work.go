package runner

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// slowAfter is how long an item occupies a worker before another worker takes the place. Admission and conversion call hosts of tenants,
	// which may answer late or never.
	slowAfter = 200 * time.Millisecond
	// maxSlowOfPayer is how many slow items one payer may have at a time, and maxSlow all payers together. Further items of such a payer
	// wait for slowPause. Beyond maxSlow, workers are replaced later: a slow etcd makes all items slow.
	maxSlowOfPayer, maxSlow = 8, 64
	slowPause               = time.Second
)

// Payer returns the account that pays for a logical cluster.
type Payer func(logicalcluster.Name) string

type payerKey struct{}

// WithPayer returns a context for Run in which the slow items of all clusters of one payer count together. Without it each cluster is its
// own payer.
func WithPayer(ctx context.Context, payer Payer) context.Context {
	return context.WithValue(ctx, payerKey{}, payer)
}

func payerFrom(ctx context.Context) Payer {
	if payer, ok := ctx.Value(payerKey{}).(Payer); ok {
		return payer
	}
	return func(cluster logicalcluster.Name) string { return string(cluster) }
}

// work calls do for the items of a queue until ctx ends, and returns when the last call has returned. Slow items do not delay items of
// other payers, except in a queue with one worker, which handles one item after the other.
func work[K Item](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], workers int, do func(context.Context, K)) {
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	p := &pool[K]{queue: queue, do: do, payer: payerFrom(ctx), replaces: workers > 1, slow: map[string]int{}}
	for range workers {
		p.running.Go(func() { p.work(ctx) })
	}
	p.running.Wait()
}

// pool is the workers of a queue.
type pool[K Item] struct {
	queue    workqueue.TypedRateLimitingInterface[K]
	do       func(context.Context, K)
	payer    Payer
	replaces bool
	running  sync.WaitGroup

	mu   sync.Mutex
	slow map[string]int // slow items whose worker was replaced, by payer
	all  int            // the sum of slow
}

// work handles items until the queue is shut down, or another worker has taken the place of this one.
func (p *pool[K]) work(ctx context.Context) {
	for replaced := false; !replaced; {
		item, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		replaced = p.handle(ctx, item)
	}
}

// handle handles one item, and returns whether the worker was replaced.
func (p *pool[K]) handle(ctx context.Context, item K) (replaced bool) {
	defer p.queue.Done(item)
	if p.isFull(item) {
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
		paidBy := p.payer(item.LogicalCluster())
		p.mu.Lock()
		defer p.mu.Unlock()
		if ended {
			return
		}
		if p.all == maxSlow {
			timer.Reset(slowAfter)
			return
		}
		p.all++
		p.slow[paidBy]++
		replaced, payer = true, paidBy
		p.running.Go(func() { p.work(ctx) })
	}
	p.mu.Lock()
	timer = time.AfterFunc(slowAfter, replace)
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

// isFull reports whether the payer of an item has the maximum of slow items.
func (p *pool[K]) isFull(item K) bool {
	p.mu.Lock()
	none := p.all == 0
	p.mu.Unlock()
	if none {
		return false
	}
	payer := p.payer(item.LogicalCluster())
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow[payer] >= maxSlowOfPayer
}
