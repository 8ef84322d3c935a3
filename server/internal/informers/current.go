package informers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// currentTimeout is how long Current waits for an event. etcd may send none for a while.
const currentTimeout = 5 * time.Second

// Acknowledged has the resource versions of the last changes of a resource that the server has acknowledged to clients.
type Acknowledged interface {
	// Last returns the version of the last change in a cluster; zero if there was none.
	Last(cluster logicalcluster.Name) uint64
	// Forget makes Last return zero instead of version.
	Forget(cluster logicalcluster.Name, version uint64)
}

// Acknowledge makes Current wait for acknowledged. It must be called before Run.
func (i *Informer) Acknowledge(acknowledged Acknowledged) { i.acknowledged = acknowledged }

// Current returns when every change in a cluster that this server has acknowledged is in the store. A client may refer to an object as soon
// as the server has acknowledged it. Current makes no request, and returns at once unless there was a change within the last milliseconds.
func (i *Informer) Current(ctx context.Context, cluster logicalcluster.Name) {
	i = i.trunk()
	if i.acknowledged == nil {
		return
	}
	last := i.acknowledged.Last(cluster)
	if version := i.version.Load(); version >= last || version == 0 { // zero: it is not filled yet
		return
	}
	arrived, forget := i.waiting.expect(last)
	defer forget()
	if i.version.Load() >= last { // the event arrived before expect
		return
	}
	timeout := time.NewTimer(currentTimeout)
	defer timeout.Stop()
	select {
	case <-arrived:
	case <-ctx.Done():
	case <-timeout.C:
		klog.FromContext(ctx).Info("The watch event of a stored object is late, using the last known state",
			decisionlog.Resource, i.resource.GroupResource(), decisionlog.Cluster, cluster)
		i.acknowledged.Forget(cluster, last)
	}
}

// versionWaiters lets callers wait until an informer has a version. Each is woken once, not by the events before.
//
// Invariants:
//   - any is the number of waiters. The informer stores its version before it reads any, and a waiter is counted before it reads the
//     version: one of both sees the other.
//   - A waiter is removed when its version is reached, or when it forgets.
type versionWaiters struct {
	any atomic.Int64 // changes while mu is held

	mu  sync.Mutex
	all map[chan struct{}]uint64
}

// expect returns a channel that is closed when the informer reaches a version after this call. The caller calls forget.
func (w *versionWaiters) expect(version uint64) (arrived <-chan struct{}, forget func()) {
	c := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[chan struct{}]uint64{}
	}
	w.all[c] = version
	w.any.Store(int64(len(w.all)))
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, c)
		w.any.Store(int64(len(w.all)))
	}
}

// reached wakes the waiters of a version and of earlier ones.
func (w *versionWaiters) reached(version uint64) {
	if w.any.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, wanted := range w.all {
		if wanted <= version {
			close(c)
			delete(w.all, c)
		}
	}
	w.any.Store(int64(len(w.all)))
}
