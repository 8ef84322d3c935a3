// Package objectlimit limits the number of objects in a logical cluster, so that no tenant fills the shard. The objects of a cluster are
// counted in etcd at the first write, and again when the count is old or reaches the limit. Between these, the count follows the objects
// that are stored and deleted. Clusters without writes or without a limit cost nothing.
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

// pause is the minimum time between two counts of a full cluster.
const pause = time.Second

var (
	logicalClusters = corev1alpha1.Resource("logicalclusters")
	bindings        = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}
)

// Config is what Limits need.
type Config struct {
	// Standard is the limit of clusters without the annotation for it; zero means no limit.
	Standard int64
	// Interval is the maximum age of a count.
	Interval time.Duration
	// Count returns the number of objects of the cluster of ctx in etcd, without the resources that Counted excludes.
	Count func(ctx context.Context) (int64, error)
	Clock clock.PassiveClock
}

// Limits are the limits of all clusters.
type Limits struct {
	config   Config
	clusters informers.Lister[*corev1alpha1.LogicalCluster]

	mu      sync.Mutex
	tallies map[logicalcluster.Name]*tally
	swept   time.Time
}

// tally is the count of a cluster with recent writes.
type tally struct {
	used time.Time // guarded by Limits.mu

	// held is the number of objects, including those that are being written to etcd. It is written under mu.
	held atomic.Int64

	mu      sync.Mutex // locked while the cluster is counted
	pending int64      // being written to etcd
	counted time.Time
}

// New returns limits that are in force after Follow.
func New(config Config) *Limits {
	return &Limits{config: config, tallies: map[logicalcluster.Name]*tally{}}
}

// Follow reads the limits of the LogicalClusters of set. It must be called before the first request.
func (l *Limits) Follow(set *informers.Set) {
	l.clusters = set.LogicalClusters
	set.LogicalClusters.AddHandler(func(old, obj runtime.Object) {
		if obj == nil {
			l.forget(logicalcluster.Of(old.(*corev1alpha1.LogicalCluster)))
		}
	})
}

// Counted reports whether objects of a resource count. Events do not, because they expire.
func Counted(resource schema.GroupResource) bool {
	return resource.Resource != "events" || (resource.Group != "" && resource.Group != "events.k8s.io")
}

// of returns the limit of a cluster, or zero if it has none. The limit applies during initialization too: initializers may belong to
// another tenant, and determine how long the initialization takes.
func (l *Limits) of(cluster logicalcluster.Name) int64 {
	lc, ok := l.clusters.Find(cluster, "", corev1alpha1.LogicalClusterName)
	if !ok {
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

// Check returns the error that Add would return, but does not count an object.
func (l *Limits) Check(ctx context.Context, resource schema.GroupResource, name string) error {
	_, err := l.add(ctx, resource, name, false)
	return err
}

// Add counts an object that is about to be stored in the cluster of ctx, or returns a Forbidden error. settle must be called with whether
// the object was stored. Objects that the server writes are counted, but never refused.
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
		return uncounted, nil // counted in etcd with the others at the next write of a client
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !exempt {
		if err := l.refresh(ctx, t, limit); err != nil {
			// Some objects beyond the limit do less harm than refusing all writes while etcd is slow.
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

// refresh counts the objects of a cluster in etcd if the count is old, or if the cluster is full.
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

// Deleted must be called for every deleted object.
func (l *Limits) Deleted(cluster logicalcluster.Name, resource schema.GroupResource) {
	if t := l.tally(cluster, false); t != nil && Counted(resource) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.held.Add(-1)
	}
}

// isExempt reports whether an object is stored even in a full cluster: without it, users could not delete other objects.
func isExempt(ctx context.Context, resource schema.GroupResource, name string) bool {
	_, ok := request.UserFrom(ctx)
	return !ok || authorization.IsServer(ctx) || resource == logicalClusters ||
		(resource == bindings && name == authorization.OwnersBindingName)
}

// tally returns the tally of a cluster, or nil if there is none and begin is false.
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

// sweep deletes the tallies of clusters without recent writes, except for clusters that are nearly full. l.mu is held.
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
