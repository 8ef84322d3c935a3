// Package workspace schedules every Workspace to a logical cluster, copies the status of the logical cluster, and deletes the logical
// cluster before the Workspace. Most workspaces are complete when they are created, and need nothing.
package workspace

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Inputs of the controller. Storage reaches the cluster in each call's context.
type Inputs struct {
	Set       *informers.Set
	Scheduler *scheduling.Scheduler
	// Clusters and Workspaces store the objects.
	Clusters, Workspaces storage.Objects
	Clock                clock.PassiveClock
}

// grace is how long the LogicalCluster of a scheduled workspace may be unknown before the workspace is unavailable.
const grace = time.Minute

var resource = tenancyv1alpha1.Resource("workspaces")

type reconciler struct {
	Inputs
	controller *runner.Controller

	waiting *runner.Waiting // for objects of other clusters
}

// New returns the controller. Its keys are Workspaces.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in}
	r.controller = runner.New("workspace", 16, r.reconcile)
	r.waiting = runner.NewWaiting(r.controller)
	// Settled objects are not enqueued: nearly all objects are settled when a server starts.
	r.controller.WatchMapped(in.Set.Workspaces.Informer, func(obj runtime.Object) []informers.Key {
		ws := obj.(*tenancyv1alpha1.Workspace)
		if lc, err := r.logicalCluster(ws); err == nil && r.settled(ws, lc) {
			return nil
		}
		return []informers.Key{{Cluster: logicalcluster.Of(ws), Name: ws.Name}}
	})
	r.controller.WatchMapped(in.Set.LogicalClusters.Informer, func(obj runtime.Object) []informers.Key {
		owner := obj.(*corev1alpha1.LogicalCluster).Spec.Owner
		if owner == nil || owner.Resource != resource.Resource {
			return nil
		}
		key := informers.Key{Cluster: logicalcluster.Name(owner.Cluster), Name: owner.Name}
		if ws, err := in.Set.Workspaces.Get(key.Cluster, "", key.Name); err == nil {
			if lc, err := r.logicalCluster(ws); err == nil && r.settled(ws, lc) {
				return nil
			}
		}
		return []informers.Key{key}
	})
	retry := func(_, _ runtime.Object) { r.waiting.Retry() }
	in.Set.Shards.AddHandlerForAll(retry)
	in.Set.WorkspaceTypes.AddHandlerForAll(retry)
	return r.controller
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	ws, err := r.Set.Workspaces.Get(key.Cluster, "", key.Name)
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	lc, err := r.logicalCluster(ws)
	if err != nil || r.settled(ws, lc) {
		return err
	}
	if ws.DeletionTimestamp != nil {
		return runner.IgnoreNotFound(r.remove(ctx, ws, lc))
	}
	if r.isExpected(ws, lc) {
		r.controller.EnqueueAfter(key, time.Second)
		return nil
	}
	live := &tenancyv1alpha1.Workspace{}
	if err := r.Workspaces.Get(ctx, key.Name, live); err != nil {
		return runner.IgnoreNotFound(err)
	}
	wanted := live.DeepCopy()
	switch {
	case live.Spec.Mount != nil:
	case live.Spec.Cluster == "":
		err = r.schedule(ctx, key, wanted)
	case r.isExpected(live, lc):
		r.controller.EnqueueAfter(key, time.Second)
	default:
		r.Scheduler.MirrorStatus(wanted, lc)
		if lc != nil {
			wanted.Spec.URL = r.url(lc)
		}
	}
	if err != nil {
		return err
	}
	return runner.IgnoreNotFound(r.commit(ctx, live, wanted))
}

func (r *reconciler) url(lc *corev1alpha1.LogicalCluster) string {
	return r.Scheduler.ExternalURL + "/clusters/" + lc.Annotations[corev1alpha1.PathAnnotation]
}

// logicalCluster returns the LogicalCluster of a workspace, and nil if it has none.
func (r *reconciler) logicalCluster(ws *tenancyv1alpha1.Workspace) (*corev1alpha1.LogicalCluster, error) {
	name := clusterOf(ws)
	if name == "" {
		return nil, nil
	}
	lc, err := r.Set.LogicalClusters.Get(name, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err == nil && !owns(ws, lc) {
		return nil, nil
	}
	return lc, err
}

// clusterOf returns the logical cluster that a workspace has, or is about to have.
func clusterOf(ws *tenancyv1alpha1.Workspace) logicalcluster.Name {
	if ws.Spec.Cluster != "" {
		return logicalcluster.Name(ws.Spec.Cluster)
	}
	return logicalcluster.Name(ws.Annotations[tenancyv1alpha1.ClusterAnnotation])
}

func owns(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) bool {
	return lc.Spec.Owner != nil && lc.Spec.Owner.UID == ws.UID
}

// isExpected reports whether the informer may soon have the logical cluster of a scheduled workspace, which was stored with it.
func (r *reconciler) isExpected(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) bool {
	return lc == nil && ws.Spec.Mount == nil && ws.Spec.Cluster != "" && r.Clock.Since(ws.CreationTimestamp.Time) < grace
}

// settled reports whether a workspace needs no change.
func (r *reconciler) settled(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) bool {
	if ws.DeletionTimestamp != nil || ws.Spec.Mount != nil || ws.Spec.Cluster == "" || lc == nil {
		return ws.Spec.Mount != nil && ws.DeletionTimestamp == nil
	}
	return ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady && lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady &&
		len(ws.Status.Initializers) == 0 && slices.Equal(ws.Status.Terminators, lc.Status.Terminators) && ws.Spec.URL == r.url(lc)
}

// schedule creates the logical cluster of a workspace, or sets a condition with the reason why that is impossible.
func (r *reconciler) schedule(ctx context.Context, key informers.Key, ws *tenancyv1alpha1.Workspace) error {
	name := logicalcluster.Name(ws.Annotations[tenancyv1alpha1.ClusterAnnotation])
	if !scheduling.IsNewName(name) { // only this controller chooses names
		name = ""
	}
	shard, err := r.Scheduler.Shard(ws)
	var impossible scheduling.UnschedulableError
	switch {
	case err == nil && shard != r.Scheduler.ShardName:
		impossible.Reason = "shard " + shard + " cannot be reached from here"
	case err != nil && !errors.As(err, &impossible):
		return err
	case err == nil && name == "":
		// The name is stored first: after a crash the controller creates the same logical cluster, and no second one.
		ws.Annotations[tenancyv1alpha1.ClusterAnnotation] = string(scheduling.NewName())
		if !slices.Contains(ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer) {
			ws.Finalizers = append(ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer)
		}
		return nil
	}
	var lc *corev1alpha1.LogicalCluster
	if impossible.Reason == "" {
		lc, err = r.Scheduler.LogicalCluster(ws, name)
		if apierrors.IsNotFound(err) {
			impossible.Reason = err.Error()
		} else if err != nil {
			return err
		}
	}
	if impossible.Reason != "" {
		decisionlog.ForChange(ctx, key.Cluster).Info("Workspace cannot be scheduled", decisionlog.Cluster, key.Cluster,
			decisionlog.Name, key.Name, decisionlog.Reason, impossible.Reason)
		r.waiting.Add(key)
		conditions.Set(&ws.Status.Conditions,
			conditions.FromError(tenancyv1alpha1.WorkspaceScheduled, tenancyv1alpha1.ReasonUnschedulable, impossible))
		return nil
	}
	if err := r.create(logicalcluster.WithName(ctx, name), ws, lc); err != nil {
		return err
	}
	if ws.Annotations[tenancyv1alpha1.ClusterAnnotation] == "" { // the name was taken
		return nil
	}
	r.Scheduler.SetLocation(ws, name, lc)
	return nil
}

// create stores the LogicalCluster of a workspace. If its name is taken, the workspace is left without one.
func (r *reconciler) create(ctx context.Context, ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) error {
	err := r.Clusters.Create(ctx, corev1alpha1.LogicalClusterName, lc)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing := &corev1alpha1.LogicalCluster{}
	if err := r.Clusters.Get(ctx, corev1alpha1.LogicalClusterName, existing); err != nil {
		return err
	}
	if !owns(ws, existing) {
		delete(ws.Annotations, tenancyv1alpha1.ClusterAnnotation)
	}
	return nil
}

// remove deletes the logical cluster of a workspace that is being deleted, and then the workspace.
func (r *reconciler) remove(ctx context.Context, ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) error {
	ours := slices.Contains(ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer)
	inside := logicalcluster.WithName(ctx, clusterOf(ws))
	if lc == nil && ours && clusterOf(ws) != "" { // the informer may not have it yet
		live := &corev1alpha1.LogicalCluster{}
		switch err := r.Clusters.Get(inside, corev1alpha1.LogicalClusterName, live); {
		case err == nil && owns(ws, live):
			lc = live
		case storage.IsUnreadable(err) && ws.Spec.Cluster != "":
			return r.replace(inside, ws)
		case err != nil && !apierrors.IsNotFound(err):
			return err
		}
	}
	held := len(ws.Finalizers) > 1 || (len(ws.Finalizers) == 1 && !ours)
	switch {
	case lc != nil && !held && lc.DeletionTimestamp == nil:
		return r.Clusters.Update(inside, corev1alpha1.LogicalClusterName, &corev1alpha1.LogicalCluster{}, scheduling.MarkDeleted)
	case lc != nil && !held && lc.Status.Phase != corev1alpha1.LogicalClusterPhaseTerminating &&
		lc.Status.Phase != corev1alpha1.LogicalClusterPhaseDeleting:
		return nil // most are deleted before there is anything to show
	case lc == nil && !held:
		return r.Workspaces.Delete(ctx, ws.Name, &tenancyv1alpha1.Workspace{}, func(obj runtime.Object) error {
			if live := obj.(*tenancyv1alpha1.Workspace); live.UID != ws.UID || !slices.Equal(live.Finalizers, ws.Finalizers) {
				return apierrors.NewConflict(resource, ws.Name, errChanged)
			}
			return nil
		})
	}
	return r.Workspaces.Update(ctx, ws.Name, &tenancyv1alpha1.Workspace{}, func(obj runtime.Object) error {
		showRemoval(obj.(*tenancyv1alpha1.Workspace), lc)
		return nil
	})
}

// replace replaces a LogicalCluster that cannot be read by one that is being deleted. Its content is then deleted as usual.
func (r *reconciler) replace(ctx context.Context, ws *tenancyv1alpha1.Workspace) error {
	lc, err := r.Scheduler.LogicalCluster(ws, clusterOf(ws))
	if apierrors.IsNotFound(err) { // its type
		untyped := ws.DeepCopy()
		untyped.Spec.Type = nil
		lc, err = r.Scheduler.LogicalCluster(untyped, clusterOf(ws))
	}
	if err != nil {
		return err
	}
	if err := scheduling.MarkDeleted(lc); err != nil {
		return err
	}
	return r.Clusters.Replace(ctx, corev1alpha1.LogicalClusterName, lc, &corev1alpha1.LogicalCluster{})
}

var errChanged = errors.New("the object has changed")

// showRemoval writes into a workspace that is being deleted what its logical cluster waits for, if that exists.
func showRemoval(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) {
	ws.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
	if lc == nil {
		ws.Finalizers = slices.DeleteFunc(ws.Finalizers, func(f string) bool { return f == tenancyv1alpha1.LogicalClusterFinalizer })
	} else {
		if ws.Status.Terminators = lc.Status.Terminators; len(ws.Status.Terminators) > 0 {
			ws.Status.Phase = corev1alpha1.LogicalClusterPhaseTerminating
		}
		for _, condition := range lc.Status.Conditions {
			if condition.Type == tenancyv1alpha1.WorkspaceContentDeleted {
				conditions.Set(&ws.Status.Conditions, condition)
			}
		}
	}
	metav1.SetMetaDataLabel(&ws.ObjectMeta, corev1alpha1.PhaseLabel, string(ws.Status.Phase))
}

// commit replaces live by wanted, unless live has changed.
func (r *reconciler) commit(ctx context.Context, live, wanted *tenancyv1alpha1.Workspace) error {
	if !reflect.DeepEqual(live.Spec, wanted.Spec) {
		wanted.Generation++
	}
	return r.Workspaces.Update(ctx, live.Name, &tenancyv1alpha1.Workspace{}, func(obj runtime.Object) error {
		now := obj.(*tenancyv1alpha1.Workspace)
		if now.ResourceVersion != live.ResourceVersion {
			return apierrors.NewConflict(resource, live.Name, errChanged)
		}
		*now = *wanted.DeepCopy()
		return nil
	})
}
