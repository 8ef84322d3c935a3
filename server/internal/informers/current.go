package informers

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// currentPoll is how often Current checks whether an event has arrived.
	currentPoll = time.Millisecond
	// currentTimeout is how long Current waits for an event. etcd may send none for a while.
	currentTimeout = 5 * time.Second
)

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
	if i.root != nil {
		i = i.root
	}
	if i.acknowledged == nil {
		return
	}
	last := i.acknowledged.Last(cluster)
	if version := i.version.Load(); version >= last || version == 0 { // zero: it is not filled yet
		return
	}
	tick, timeout := time.NewTicker(currentPoll), time.NewTimer(currentTimeout)
	defer tick.Stop()
	defer timeout.Stop()
	for i.version.Load() < last {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-timeout.C:
			klog.FromContext(ctx).Info("The watch event of a stored object is late, using the last known state",
				decisionlog.Resource, i.resource.GroupResource(), decisionlog.Cluster, cluster)
			i.acknowledged.Forget(cluster, last)
			return
		}
	}
}
