package furthershard

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
)

// parallelReads limits the concurrent reads of Shard objects: a kcp that does not answer makes the others late only if there are many.
const parallelReads = 16

// watch reads Shard objects in kcp again, and triggers a reconciliation of the Shards whose object has changed. While nothing changes, an
// idle Shard causes one request to kcp, and none to the API server of the cluster.
type watch struct {
	mu   sync.Mutex
	seen map[client.ObjectKey]*view
}

// view is what a reconciliation has read of a Shard object in kcp, and with which credentials.
type view struct {
	credentials kcpaccess.Credentials
	answer      answer
}

// answer is the response to a read; err is empty after a success.
type answer struct {
	found kcpaccess.Registered
	err   string
}

func newAnswer(found kcpaccess.Registered, err error) answer {
	if err != nil {
		return answer{err: err.Error()}
	}
	return answer{found: found}
}

// set records what a reconciliation has read. Nil: the Shard object is not read again.
func (w *watch) set(key client.ObjectKey, v *view) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[client.ObjectKey]*view{}
	}
	if w.seen[key] = v; v == nil {
		delete(w.seen, key)
	}
}

// Changed reads the Shard objects in kcp that reconciliations have read, and returns requests for the Shards whose object is another one
// now.
func (r *Reconciler) Changed(ctx context.Context) []reconcile.Request {
	w := &r.watch
	w.mu.Lock()
	seen := maps.Clone(w.seen)
	w.mu.Unlock()
	var requests []reconcile.Request
	var reads errgroup.Group
	reads.SetLimit(parallelReads)
	for key, v := range seen {
		reads.Go(func() error {
			current := newAnswer(r.Registry.Shard(ctx, v.credentials, key.Name))
			w.mu.Lock()
			defer w.mu.Unlock()
			if current != v.answer && w.seen[key] == v { // otherwise, a reconciliation has read it since
				requests = append(requests, reconcile.Request{NamespacedName: key})
			}
			return nil
		})
	}
	_ = reads.Wait()
	return requests
}

// Start implements source.Source: it triggers reconciliations until ctx ends.
func (r *Reconciler) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		tick := time.NewTicker(component.Again)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			for _, request := range r.Changed(ctx) {
				queue.Add(request)
			}
		}
	}()
	return nil
}
