package informers

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// awaitPoll is how often Await checks for events that have not arrived.
const awaitPoll = 2 * time.Millisecond

// Versions reads the resource versions of the stored objects of a cluster-scoped resource in a cluster, by name, and the current version.
type Versions func(ctx context.Context) (stored map[string]uint64, now uint64, err error)

// Await waits until the informer has all objects that the cluster stored at the time of the call, and the handlers have handled them.
func (l Lister[T]) Await(ctx context.Context, cluster logicalcluster.Name, stored Versions) error {
	err := wait.PollUntilContextCancel(ctx, awaitPoll, true, func(ctx context.Context) (bool, error) {
		versions, now, err := stored(ctx) // again, because objects may have been deleted since
		return err == nil && l.hasAll(cluster, versions, now), err
	})
	l.WaitForHandlers()
	return err
}

// WaitForHandlers waits until the handlers have handled the current content of the store.
func (i *Informer) WaitForHandlers() {
	i.mu.Lock()
	defer i.mu.Unlock()
}

func (l Lister[T]) hasAll(cluster logicalcluster.Name, stored map[string]uint64, now uint64) bool {
	known, err := l.List(cluster)
	if err != nil {
		return false
	}
	found := 0
	for _, obj := range known {
		m, err := meta.Accessor(obj)
		if err != nil {
			return false
		}
		version, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
		at, is := stored[m.GetName()]
		switch {
		case err != nil || (is && version < at) || (!is && version <= now):
			return false
		case is:
			found++
		}
	}
	return found == len(stored)
}
