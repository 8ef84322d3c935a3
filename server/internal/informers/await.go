package informers

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// awaitPoll is how often Await looks for events that are on their way.
const awaitPoll = 2 * time.Millisecond

// Versions reads the resource versions of the objects that a cluster stores of a cluster scoped resource, by name, and the one of
// now.
type Versions func(ctx context.Context) (stored map[string]uint64, now uint64, err error)

// Await waits until everything that a cluster stored when Await was called has come here, and was told to the handlers.
func (l Lister[T]) Await(ctx context.Context, cluster logicalcluster.Name, stored Versions) error {
	err := wait.PollUntilContextCancel(ctx, awaitPoll, true, func(ctx context.Context) (bool, error) {
		versions, now, err := stored(ctx) // again: what was to come may be gone meanwhile
		return err == nil && l.hasAll(cluster, versions, now), err
	})
	l.Told()
	return err
}

// Told waits until the handlers were told of everything that is in the store.
func (i *Informer) Told() {
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
