package inactive

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/request/cancellation"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Watches ends the open watches of logical clusters that become inactive or are deleted.
type Watches struct {
	clusters Lister
	open     cancellation.Requests[logicalcluster.Cluster]
}

// NewWatches returns Watches that follows LogicalClusters.
func NewWatches(clusters Lister) *Watches {
	w := &Watches{clusters: clusters}
	clusters.AddHandler(func(old, obj runtime.Object) {
		before, _ := old.(*corev1alpha1.LogicalCluster)
		after, _ := obj.(*corev1alpha1.LogicalCluster)
		if becomes(before, after, marked) {
			// Watches of all clusters also include this one, and restart.
			w.open.End(logicalcluster.Cluster{Wildcard: true})
			w.open.End(logicalcluster.Cluster{Name: logicalcluster.Of(after)})
		}
		if becomes(before, after, deleting) {
			w.open.End(logicalcluster.Cluster{Name: logicalcluster.Of(after)})
		}
		if after == nil {
			w.open.End(logicalcluster.Cluster{Name: logicalcluster.Of(before)})
		}
	})
	return w
}

// becomes reports whether a condition is true after a change and was not before. Either state may be nil, for none.
func becomes(before, after *corev1alpha1.LogicalCluster, is func(*corev1alpha1.LogicalCluster) bool) bool {
	return after != nil && is(after) && (before == nil || !is(before))
}

func deleting(lc *corev1alpha1.LogicalCluster) bool {
	return lc.Status.Phase == corev1alpha1.LogicalClusterPhaseDeleting
}

// WithEnd ends watches when their cluster becomes inactive. Requests of the server itself, and for LogicalClusters, continue.
func (w *Watches) WithEnd(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		cluster, ok := logicalcluster.From(ctx)
		if !ok || !ends(ctx) {
			next.ServeHTTP(rw, r)
			return
		}
		w.clusters.WaitForChanges(ctx, fairqueue.From(ctx).Stand)
		ctx, end := w.open.Begin(ctx, cluster)
		defer end()
		if !cluster.Wildcard && isInactive(w.clusters, cluster.Name) {
			end() // the cluster became inactive after the request was accepted and before the watch was registered
		}
		next.ServeHTTP(rw, r.WithContext(ctx))
	})
}

func ends(ctx context.Context) bool {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || !info.IsResourceRequest || info.Verb != "watch" ||
		(info.APIGroup == corev1alpha1.SchemeGroupVersion.Group && info.Resource == "logicalclusters") {
		return false
	}
	return !authorization.IsServer(ctx)
}
