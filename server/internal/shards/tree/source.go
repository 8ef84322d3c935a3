package tree

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
)

const (
	// linger is how long changes are recorded after the last front proxy has left, so that it can resume.
	linger = time.Minute
	// maxSnapshots limits the snapshots that are encoded at the same time. Others wait.
	maxSnapshots = 2
)

// Config of a Source.
type Config struct {
	// Shard and Incarnation are those of this shard.
	Shard, Incarnation string
	Workspaces         informers.Lister[*tenancyv1alpha1.Workspace]
	Clusters           informers.Lister[*corev1alpha1.LogicalCluster]
	// Shards returns the Shards that this shard knows.
	Shards func() []Shard
	// Progress makes etcd report the current revision to the informers.
	Progress func(context.Context) error
	// Stopping is closed when the server begins to stop.
	Stopping <-chan struct{}
	Clock    clock.WithTickerAndDelayedExecution
}

// Source serves the tree of this shard to front proxies.
//
// Invariants:
//   - Without a connected proxy, and a minute after the last one, nothing is recorded, and no handler exists.
//   - All proxies share one changelog, in which every change is encoded once. A proxy that reads more slowly than changes arrive loses its
//     connection; what it has not read does not grow.
//   - A stream has the changes of an object in their order, and a snapshot has no object that is older than a change before it.
type Source struct {
	config    Config
	snapshots chan struct{}

	mu      sync.Mutex
	log     *changelog // nil while nothing is recorded
	readers int
	// stop removes the handlers that fill log. expiry stops the recording, while there are no readers.
	stop   func()
	expiry clock.Timer
}

// NewSource returns a source.
func NewSource(config Config) *Source {
	return &Source{config: config, snapshots: make(chan struct{}, maxSnapshots)}
}

// acquire returns the changelog, which records until release is called.
func (s *Source) acquire() *changelog {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers++
	if s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
	if s.log == nil {
		s.log = newChangelog(logBytes)
		s.stop = s.record(s.log)
	}
	return s.log
}

func (s *Source) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers--; s.readers > 0 {
		return
	}
	s.expiry = s.config.Clock.AfterFunc(linger, s.expire)
}

func (s *Source) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers == 0 && s.log != nil {
		s.stop()
		s.log, s.stop, s.expiry = nil, nil, nil
	}
}

// record adds handlers that write changes to log, and returns a function that removes them.
func (s *Source) record(log *changelog) (stop func()) {
	noEdges := s.config.Workspaces.AddChangeHandler(func(old, obj runtime.Object) {
		if record, changed := changedEdge(old, obj); changed {
			log.add(appendEdge(nil, record))
		}
	})
	noClusters := s.config.Clusters.AddChangeHandler(func(old, obj runtime.Object) {
		if record, changed := changedCluster(old, obj); changed {
			log.add(appendCluster(nil, record))
		}
	})
	return func() {
		noEdges()
		noClusters()
	}
}

// changedEdge returns the record after a change of a Workspace, and whether it differs from the record before.
func changedEdge(old, obj runtime.Object) (Edge, bool) {
	if obj == nil {
		before := EdgeOf(old.(*tenancyv1alpha1.Workspace))
		return Edge{Parent: before.Parent, Name: before.Name, Deleted: true}, !before.Deleted
	}
	after := EdgeOf(obj.(*tenancyv1alpha1.Workspace))
	if old == nil {
		return after, !after.Deleted
	}
	return after, after != EdgeOf(old.(*tenancyv1alpha1.Workspace))
}

// changedCluster returns the record after a change of a LogicalCluster, and whether it differs from the record before.
func changedCluster(old, obj runtime.Object) (Cluster, bool) {
	if obj == nil {
		return Cluster{Name: ClusterOf(old.(*corev1alpha1.LogicalCluster)).Name, Deleted: true}, true
	}
	after := ClusterOf(obj.(*corev1alpha1.LogicalCluster))
	return after, old == nil || after != ClusterOf(old.(*corev1alpha1.LogicalCluster))
}

// version returns the revision up to which the informers, and so the changelog, have all changes.
func (s *Source) version() uint64 {
	return min(s.config.Workspaces.Version(), s.config.Clusters.Version())
}
