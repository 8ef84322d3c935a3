package informers

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// currentPoll is how often Current looks whether an event has come.
	currentPoll = time.Millisecond
	// currentTimeout is for how long Current waits for it: etcd may send none for a while.
	currentTimeout = 5 * time.Second
)

// Acknowledged knows up to which resource version clients were told that changes of a resource are stored.
type Acknowledged interface {
	// Last returns the version of the last change in a cluster; zero if there was none.
	Last(cluster logicalcluster.Name) uint64
	// Forget makes Last return zero instead of version.
	Forget(cluster logicalcluster.Name, version uint64)
}

// Acknowledge makes Current wait for acknowledged. It must be called before Run.
func (i *Informer) Acknowledge(acknowledged Acknowledged) { i.acknowledged = acknowledged }

// Current returns when every change in a cluster that this server has acknowledged so far is in the store: who has just been told that an
// object is stored may refer to it. That costs no request, and takes no time unless there was a change within the last milliseconds.
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
