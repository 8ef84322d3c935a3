package logicalcluster

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Inputs of the controller. Clients and storage reach the cluster in each call's context.
type Inputs struct {
	Set      *informers.Set
	Metadata metadata.Interface
	// Resources returns the resources that the cluster of ctx serves.
	Resources func(ctx context.Context) ([]discovery.Resource, error)
	// Held returns those of the resources of which the cluster of ctx stores objects, in a namespace or in all namespaces.
	Held func(ctx context.Context, resources []schema.GroupResource, namespace string) ([]schema.GroupResource, error)
	// Serves returns the resources that a cluster serves and that are not built in. Remains deletes their objects in storage.
	Serves  func(logicalcluster.Name) []customresources.Installed
	Remains *storage.Remains
	// Contents deletes objects that need no request to the API.
	Contents Contents
	// Clusters and Workspaces store the objects.
	Clusters, Workspaces storage.Objects
	// Left reports whether this shard has a LogicalCluster that it does not hold, because it is moved; nil if this is the only shard.
	Left func(context.Context, logicalcluster.Name) (bool, error)
	// ExternalURL of the installation, without a trailing slash.
	ExternalURL string
	Clock       clock.WithDelayedExecution
}

const (
	remainingInterval = time.Second
	orphanAge         = time.Minute
	slowDeletion      = time.Second
)

var (
	resource   = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	workspaces = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
)

type reconciler struct {
	Inputs
	controller *runner.Controller
	started    time.Time
}

// New returns the controller. Its keys are LogicalClusters.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in, started: in.Clock.Now()}
	r.controller = runner.New("logicalcluster", 8, r.reconcile)
	// Settled objects are not enqueued: nearly all objects are settled when a server starts.
	r.controller.WatchMapped(in.Set.LogicalClusters.Informer, func(obj runtime.Object) []informers.Key {
		lc := obj.(*corev1alpha1.LogicalCluster)
		if r.settled(lc) {
			return nil
		}
		return []informers.Key{{Cluster: logicalcluster.Of(lc), Name: lc.Name}}
	})
	in.Set.Namespaces.AddHandler(func(old, obj runtime.Object) {
		if obj == nil {
			r.namespaceDeleted(logicalcluster.Of(old.(*corev1.Namespace)))
		}
	})
	return r.controller
}

// namespaceDeleted enqueues a logical cluster whose deletion may have waited for one of its namespaces.
func (r *reconciler) namespaceDeleted(cluster logicalcluster.Name) {
	lc, err := r.Set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err == nil && lc.DeletionTimestamp != nil {
		r.controller.Enqueue(informers.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	}
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	lc, err := r.Set.LogicalClusters.Get(key.Cluster, "", key.Name)
	if err != nil || r.settled(lc) {
		return runner.IgnoreNotFound(err)
	}
	if orphan, err := r.orphan(ctx, key, lc); orphan || err != nil {
		return err
	}
	if lc.DeletionTimestamp != nil && len(lc.Finalizers) == 0 {
		return r.delete(ctx, lc)
	}
	var content *corev1alpha1.Condition
	if deletable(lc) {
		// Most are empty after a moment. A longer deletion is shown in the status.
		slow := r.Clock.AfterFunc(slowDeletion, func() {
			if err := r.show(ctx, lc, &inProgress); err != nil {
				decisionlog.ForFailure(ctx, key.Cluster).Info("Setting the condition of a slow deletion failed", decisionlog.Cluster, key.Cluster,
					decisionlog.Reason, err)
			}
		})
		remaining, gone, err := r.deleteContent(ctx, lc)
		slow.Stop()
		if gone || isNotCurrent(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(remaining) == 0 && len(lc.Finalizers) == 1 {
			return r.delete(ctx, lc)
		}
		if len(remaining) > 0 {
			r.controller.EnqueueAfter(key, remainingInterval)
		}
		condition := contentCondition(remaining)
		content = &condition
	}
	return r.show(ctx, lc, content)
}

// show writes the next phase, and the condition of the content if that is being deleted.
func (r *reconciler) show(ctx context.Context, lc *corev1alpha1.LogicalCluster, content *corev1alpha1.Condition) error {
	return ignoreGone(r.Clusters.Update(ctx, lc.Name, &corev1alpha1.LogicalCluster{}, func(obj runtime.Object) error {
		live := obj.(*corev1alpha1.LogicalCluster)
		if live.UID != lc.UID {
			return apierrors.NewConflict(resource.GroupResource(), lc.Name, errChanged)
		}
		advance(live, r.ExternalURL)
		if content != nil {
			conditions.Set(&live.Status.Conditions, *content)
			if content.Status == metav1.ConditionTrue {
				live.Finalizers = slices.DeleteFunc(live.Finalizers, func(f string) bool { return f == corev1alpha1.DeletionFinalizer })
			}
		}
		return nil
	}))
}

var errChanged = errors.New("the object has changed")

// delete removes a LogicalCluster without content and further finalizers.
func (r *reconciler) delete(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	return ignoreGone(r.Clusters.Delete(ctx, lc.Name, &corev1alpha1.LogicalCluster{}, func(obj runtime.Object) error {
		if live := obj.(*corev1alpha1.LogicalCluster); live.UID != lc.UID || !slices.Equal(live.Finalizers, lc.Finalizers) {
			return apierrors.NewConflict(resource.GroupResource(), lc.Name, errChanged)
		}
		return nil
	}))
}

// deletable reports whether the content of a logical cluster must be deleted now.
func deletable(lc *corev1alpha1.LogicalCluster) bool {
	return nextPhase(lc) == corev1alpha1.LogicalClusterPhaseDeleting && slices.Contains(lc.Finalizers, corev1alpha1.DeletionFinalizer)
}

// settled reports whether a logical cluster needs no change.
func (r *reconciler) settled(lc *corev1alpha1.LogicalCluster) bool {
	return lc.DeletionTimestamp == nil && lc.Status.Phase == nextPhase(lc) && lc.Labels[corev1alpha1.PhaseLabel] == string(lc.Status.Phase) &&
		lc.Status.URL == urlOf(lc, r.ExternalURL) && lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady &&
		slices.Contains(lc.Finalizers, corev1alpha1.TerminatorsFinalizer) == (len(lc.Status.Terminators) > 0) && !r.suspect(lc)
}

// suspect reports whether the workspace of a logical cluster may have been deleted while no server was running: the cluster is older than
// this process, and the informer does not have the workspace. If the workspace is on another shard, that shard has the cluster deleted:
// that this one does not find the workspace says nothing.
func (r *reconciler) suspect(lc *corev1alpha1.LogicalCluster) bool {
	owner := lc.Spec.Owner
	if owner == nil || owner.Resource != workspaces.Resource || lc.DeletionTimestamp != nil || !lc.CreationTimestamp.Time.Before(r.started) {
		return false
	}
	parent := logicalcluster.Name(owner.Cluster)
	if r.Left != nil {
		if _, err := r.Set.LogicalClusters.GetLocal(parent, "", corev1alpha1.LogicalClusterName); err != nil {
			return false
		}
	}
	_, err := r.Set.Workspaces.Get(parent, "", owner.Name)
	return apierrors.IsNotFound(err)
}

// orphan deletes a logical cluster whose workspace does not exist, if it is so old that no other server can still be storing the workspace.
func (r *reconciler) orphan(ctx context.Context, key informers.Key, lc *corev1alpha1.LogicalCluster) (bool, error) {
	if !r.suspect(lc) {
		return false, nil
	}
	if age := r.Clock.Since(lc.CreationTimestamp.Time); age < orphanAge {
		r.controller.EnqueueAfter(key, orphanAge-age)
		return true, nil
	}
	owner := lc.Spec.Owner
	if r.Left != nil {
		if left, err := r.Left(ctx, logicalcluster.Name(owner.Cluster)); err != nil || left {
			return false, err
		}
	}
	found := &tenancyv1alpha1.Workspace{}
	err := r.Workspaces.Get(logicalcluster.WithName(ctx, logicalcluster.Name(owner.Cluster)), owner.Name, found)
	if err == nil && found.UID == owner.UID {
		return false, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	return true, ignoreGone(r.Clusters.Update(ctx, key.Name, &corev1alpha1.LogicalCluster{}, scheduling.MarkDeleted(lc.UID)))
}
