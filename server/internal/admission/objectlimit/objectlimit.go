// Package objectlimit bounds how many objects a logical cluster holds, so that no tenant fills the shard. A cluster is
// counted in etcd when it is first written to, and again when the count is old or says that the cluster is full; between
// that, the count follows what is stored and deleted. Clusters that are not written to, or have no limit, cost nothing.
package objectlimit

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// pause is the least time between two counts of a full cluster.
const pause = time.Second

var (
	logicalClusters = corev1alpha1.Resource("logicalclusters")
	bindings        = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}
)

// Config of Limits.
type Config struct {
	// Standard is the limit of clusters that have none of their own; zero is none.
	Standard int64
	// Interval is how old a count may be.
	Interval time.Duration
	// Count returns how many objects the cluster of ctx holds in etcd. Those that Counted excludes are not among them.
	Count func(ctx context.Context) (int64, error)
	Clock clock.PassiveClock
}

// Limits are those of all clusters.
type Limits struct {
	config   Config
	clusters informers.Lister[*corev1alpha1.LogicalCluster]

	mu      sync.Mutex
	tallies map[logicalcluster.Name]*tally
	swept   time.Time
}

// tally is what is known of a cluster that is written to.
type tally struct {
	used time.Time // guarded by Limits.mu

	// held is how many objects there are, those included that are on their way to etcd. It is written under mu.
	held atomic.Int64

	mu      sync.Mutex // locked while the cluster is counted
	pending int64      // on their way to etcd
	counted time.Time
}

// New returns limits that are in force once Follow was called.
func New(config Config) *Limits {
	return &Limits{config: config, tallies: map[logicalcluster.Name]*tally{}}
}

// Follow makes the limits those of the LogicalClusters of set. It must be called before the first request.
func (l *Limits) Follow(set *informers.Set) {
	l.clusters = set.LogicalClusters
	set.LogicalClusters.AddHandler(func(old, obj runtime.Object) {
		if obj == nil {
			l.forget(logicalcluster.Of(old.(*corev1alpha1.LogicalCluster)))
		}
	})
}

// Counted tells whether objects of a resource count. Events do not: they come and go on their own.
func Counted(resource schema.GroupResource) bool {
	return resource.Resource != "events" || (resource.Group != "" && resource.Group != "events.k8s.io")
}

// of returns the limit of a cluster, zero if it has none. One that is being set up has its limit already: who sets it up may be
// another tenant, and decides how long that takes.
func (l *Limits) of(cluster logicalcluster.Name) int64 {
	lc, err := l.clusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return 0
	}
	if own, err := strconv.ParseInt(lc.Annotations[corev1alpha1.MaxTotalObjectsAnnotation], 10, 64); err == nil {
		return max(0, own)
	}
	if cluster == logicalcluster.Root || cluster.IsSystem() {
		return 0
	}
	return l.config.Standard
}

// Check returns the error that Add would, but takes no room.
func (l *Limits) Check(ctx context.Context, resource schema.GroupResource, name string) error {
	_, err := l.add(ctx, resource, name, false)
	return err
}

// Add takes room for an object that is about to be stored in the cluster of ctx, or returns a Forbidden error. settle must
// be called with what has become of it. What the server writes for itself is counted, but never refused.
func (l *Limits) Add(ctx context.Context, resource schema.GroupResource, obj runtime.Object) (settle func(stored bool), err error) {
	name := ""
	if m, err := meta.Accessor(obj); err == nil {
		name = m.GetName()
	}
	return l.add(ctx, resource, name, true)
}

func uncounted(bool) {}

func (l *Limits) add(ctx context.Context, resource schema.GroupResource, name string, take bool) (settle func(stored bool), err error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil || !Counted(resource) {
		return uncounted, nil
	}
	limit := l.of(cluster)
	if limit == 0 {
		return uncounted, nil
	}
	exempt := isExempt(ctx, resource, name)
	t := l.tally(cluster, !exempt)
	if t == nil {
		return uncounted, nil // it is counted with the rest, when somebody else writes
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !exempt {
		if err := l.refresh(ctx, t, limit); err != nil {
			// A limit that stopped all work while etcd is slow would do more harm than some objects too many.
			decisionlog.ForFailure(ctx, cluster).Error(err, "Counting the objects of a logical cluster failed", decisionlog.Cluster, cluster)
		} else if held := t.held.Load(); held >= limit {
			return nil, apierrors.NewForbidden(resource, name,
				fmt.Errorf("the logical cluster holds %d objects, and its total object count limit is %d: "+
					"delete unneeded objects, or ask an administrator of the installation for a higher %s", held, limit,
					corev1alpha1.MaxTotalObjectsAnnotation))
		}
	}
	if !take {
		return uncounted, nil
	}
	t.pending++
	t.held.Add(1)
	return t.settle, nil
}

func (t *tally) settle(stored bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending--
	if !stored {
		t.held.Add(-1)
	}
}

// refresh counts the objects of a cluster in etcd, if what is known of them may be wrong and matters.
func (l *Limits) refresh(ctx context.Context, t *tally, limit int64) error {
	age := l.config.Clock.Since(t.counted)
	full := t.held.Load() >= limit
	if age < l.config.Interval && !(full && age >= pause) {
		return nil
	}
	stored, err := l.config.Count(ctx)
	if err != nil {
		return err
	}
	t.held.Store(stored + t.pending)
	t.counted = l.config.Clock.Now()
	return nil
}

// Deleted is told of every object that has gone.
func (l *Limits) Deleted(cluster logicalcluster.Name, resource schema.GroupResource) {
	if t := l.tally(cluster, false); t != nil && Counted(resource) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.held.Add(-1)
	}
}

// isExempt tells whether an object is stored even in a full cluster: without it nobody could clear the cluster up.
func isExempt(ctx context.Context, resource schema.GroupResource, name string) bool {
	_, ok := request.UserFrom(ctx)
	return !ok || authorization.IsServer(ctx) || resource == logicalClusters ||
		(resource == bindings && name == authorization.OwnersBindingName)
}

// tally returns that of a cluster, nil if there is none and none is to be made.
func (l *Limits) tally(cluster logicalcluster.Name, begin bool) *tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, now := l.tallies[cluster], l.config.Clock.Now()
	if t == nil {
		if !begin {
			return nil
		}
		l.sweep(now)
		t = &tally{}
		l.tallies[cluster] = t
	}
	t.used = now
	return t
}

func (l *Limits) forget(cluster logicalcluster.Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tallies, cluster)
}

// sweep drops what is known of clusters that are not written to any more, but for those that are nearly full. l.mu is held.
func (l *Limits) sweep(now time.Time) {
	if now.Sub(l.swept) < l.config.Interval {
		return
	}
	l.swept = now
	for cluster, t := range l.tallies {
		if now.Sub(t.used) >= l.config.Interval && !nearlyFull(t.held.Load(), l.of(cluster)) {
			delete(l.tallies, cluster)
		}
	}
}
