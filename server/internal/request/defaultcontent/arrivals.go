package defaultcontent

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// arrivals wakes those that wait for objects of a logical cluster in an informer. Asking the informer each millisecond instead wakes each
// of them dozens of times.
type arrivals struct {
	mu      sync.Mutex
	waiting map[logicalcluster.Name]chan struct{} // each holds one value
}

// await returns when arrived reports true, or with the error of ctx. At most one caller may wait for a cluster at a time.
func (a *arrivals) await(ctx context.Context, cluster logicalcluster.Name, arrived func(logicalcluster.Name) bool) error {
	changed := make(chan struct{}, 1)
	a.mu.Lock()
	if a.waiting == nil {
		a.waiting = map[logicalcluster.Name]chan struct{}{}
	}
	a.waiting[cluster] = changed
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.waiting, cluster)
	}()
	for !arrived(cluster) {
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// changed is an informers.Handler, which is called after the informer has the object.
func (a *arrivals) changed(_, obj runtime.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == 0 || obj == nil {
		return
	}
	key, err := informers.KeyOf(obj)
	if err != nil {
		return
	}
	select {
	case a.waiting[key.Cluster] <- struct{}{}: // a nil channel if nothing waits for the cluster
	default:
	}
}
