package inactive

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Watches ends the open watches of clusters that go out of service or are deleted. It remembers each open watch, and
// nothing of a cluster that has none.
type Watches struct {
	clusters Lister

	mu   sync.Mutex // guards open
	open map[logicalcluster.Cluster]map[*openWatch]struct{}
}

type openWatch struct{ end context.CancelFunc }

// NewWatches follows the LogicalClusters of clusters.
func NewWatches(clusters Lister) *Watches {
	w := &Watches{clusters: clusters, open: map[logicalcluster.Cluster]map[*openWatch]struct{}{}}
	clusters.AddHandler(func(old, obj runtime.Object) {
		before, _ := old.(*corev1alpha1.LogicalCluster)
		after, _ := obj.(*corev1alpha1.LogicalCluster)
		if becomes(before, after, marked) {
			// Watches of all clusters start again as well: they see this one too.
			w.endAll(logicalcluster.Cluster{Wildcard: true})
			w.endAll(logicalcluster.Cluster{Name: logicalcluster.Of(after)})
		}
		if becomes(before, after, deleting) {
			w.endAll(logicalcluster.Cluster{Name: logicalcluster.Of(after)})
		}
		if after == nil {
			w.endAll(logicalcluster.Cluster{Name: logicalcluster.Of(before)})
		}
	})
	return w
}

// becomes tells whether something is true after a change that was not before it. Either state may be nil, for none.
func becomes(before, after *corev1alpha1.LogicalCluster, is func(*corev1alpha1.LogicalCluster) bool) bool {
	return after != nil && is(after) && (before == nil || !is(before))
}

func deleting(lc *corev1alpha1.LogicalCluster) bool {
	return lc.Status.Phase == corev1alpha1.LogicalClusterPhaseDeleting
}

// WithEnd makes the watches that pass through it end when their cluster goes out of service. The requests of the server
// itself, and those for LogicalClusters, go on.
func (w *Watches) WithEnd(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		cluster, ok := logicalcluster.From(ctx)
		if !ok || !ends(ctx) {
			next.ServeHTTP(rw, r)
			return
		}
		ctx, end := context.WithCancel(ctx)
		defer end()
		defer w.add(cluster, &openWatch{end})()
		if !cluster.Wildcard && isInactive(w.clusters, cluster.Name) {
			end() // it went out of service after the request was let in, and before the watch was remembered
		}
		next.ServeHTTP(rw, r.WithContext(ctx))
	})
}

func ends(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest || info.Verb != "watch" || (info.APIGroup == corev1alpha1.SchemeGroupVersion.Group && info.Resource == "logicalclusters") {
		return false
	}
	u, ok := request.UserFrom(ctx)
	return !ok || u.GetName() != user.APIServerUser
}

// add remembers a watch until the function that it returns is called.
func (w *Watches) add(cluster logicalcluster.Cluster, watch *openWatch) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[cluster] == nil {
		w.open[cluster] = map[*openWatch]struct{}{}
	}
	w.open[cluster][watch] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open[cluster], watch)
		if len(w.open[cluster]) == 0 {
			delete(w.open, cluster)
		}
	}
}

func (w *Watches) endAll(cluster logicalcluster.Cluster) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for watch := range w.open[cluster] {
		watch.end()
	}
}
