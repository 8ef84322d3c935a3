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
	Elsewhere            Delete // nil if there is no other shard
	Clock                clock.WithDelayedExecution
}

// Delete deletes the logical cluster of a workspace on another shard. It returns nil when that is deleted, and will never exist again.
type Delete func(ctx context.Context, ws *tenancyv1alpha1.Workspace, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error)

// grace is how long the LogicalCluster of a scheduled workspace may be unknown before the workspace is unavailable.
const grace = time.Minute

var resource = tenancyv1alpha1.Resource("workspaces")

type reconciler struct {
	Inputs
	controller *runner.Controller

	waiting  *runner.Waiting // for objects of other clusters
	expected *expected       // for their logical clusters
}

// New returns the controller. Its keys are Workspaces.
func New(in Inputs) *runner.Controller {
	r := newReconciler(in)
	// Workspaces that exist are looked at with their logical clusters, which must be watched by then.
	r.controller.WatchMappedChanges(in.Set.LogicalClusters.Informer, r.clusterChanged)
	r.controller.WatchMapped(in.Set.Workspaces.Informer, r.changed)
	retry := func(_, _ runtime.Object) { r.waiting.Retry() }
	in.Set.Shards.AddHandlerForAll(retry)
	in.Set.WorkspaceTypes.AddHandlerForAll(retry)
	return r.controller
}

func newReconciler(in Inputs) *reconciler {
	r := &reconciler{Inputs: in}
	r.controller = runner.New("workspace", 16, r.reconcile)
	r.waiting = runner.NewWaiting(r.controller)
	r.expected = newExpected(in.Clock, r.controller.Enqueue)
	return r
}

// changed returns the key of a workspace that must be reconciled. Settled ones are not: nearly all are settled when a server starts.
func (r *reconciler) changed(obj runtime.Object) []informers.Key {
	ws := obj.(*tenancyv1alpha1.Workspace)
	key := informers.Key{Cluster: logicalcluster.Of(ws), Name: ws.Name}
	switch lc := r.logicalCluster(ws); {
	case r.settled(ws, lc):
		return nil
	case ws.DeletionTimestamp == nil && r.isExpected(ws, lc): // most new ones: both arrive at the same time
		r.expected.add(key)
		return nil
	}
	if wait := r.requestContinues(ws); wait > 0 { // most new ones on other shards
		r.controller.EnqueueAfter(key, wait)
		return nil
	}
	return []informers.Key{key}
}

// clusterChanged returns the key of the workspace of a logical cluster that must be reconciled. One that is not known is on another shard,
// or will be decided about when it arrives.
func (r *reconciler) clusterChanged(obj runtime.Object) []informers.Key {
	owner := obj.(*corev1alpha1.LogicalCluster).Spec.Owner
	if owner == nil || owner.Resource != resource.Resource {
		return nil
	}
	key := informers.Key{Cluster: logicalcluster.Name(owner.Cluster), Name: owner.Name}
	ws, ok := r.Set.Workspaces.Find(key.Cluster, "", key.Name)
	if !ok {
		return nil
	}
	if r.settled(ws, r.logicalCluster(ws)) {
		r.expected.arrived(key)
		return nil
	}
	return []informers.Key{key}
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	ws, err := r.Set.Workspaces.Get(key.Cluster, "", key.Name)
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	if r.Scheduler.IsElsewhere(ws) {
		return r.reconcileElsewhere(ctx, key, ws)
	}
	if err := r.stranded(ws); err != nil {
		return err
	}
	lc := r.logicalCluster(ws)
	if r.settled(ws, lc) {
		return nil
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
func (r *reconciler) logicalCluster(ws *tenancyv1alpha1.Workspace) *corev1alpha1.LogicalCluster {
	name := clusterOf(ws)
	if name == "" {
		return nil
	}
	lc, ok := r.Set.LogicalClusters.Find(name, "", corev1alpha1.LogicalClusterName)
	if !ok || !owns(ws, lc) {
		return nil
	}
	return lc
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
	if ws.DeletionTimestamp != nil || ws.Spec.Mount != nil || ws.Spec.Cluster == "" {
		return ws.Spec.Mount != nil && ws.DeletionTimestamp == nil
	}
	if r.Scheduler.IsElsewhere(ws) {
		return true // its shard reports what it shows
	}
	return lc != nil && ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady && lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady &&
		len(ws.Status.Initializers) == 0 && slices.Equal(ws.Status.Terminators, lc.Status.Terminators) && ws.Spec.URL == r.url(lc)
}

// schedule creates the logical cluster of a workspace, or sets a condition with the reason why that is impossible. The shard and the name
// are stored first: after a crash the controller creates the same logical cluster, and no second one.
func (r *reconciler) schedule(ctx context.Context, key informers.Key, ws *tenancyv1alpha1.Workspace) error {
	name := logicalcluster.Name(ws.Annotations[tenancyv1alpha1.ClusterAnnotation])
	if !scheduling.IsNameFor(key.Cluster, ws.Name, name) { // only the scheduler chooses names
		shard, err := r.Scheduler.Shard(ws)
		if err == nil {
			scheduling.SetPlacement(ws, shard, scheduling.NameFor(ws))
			return nil
		}
		return r.unscheduled(ctx, key, ws, err)
	}
	lc, err := r.Scheduler.LogicalCluster(ws, name)
	if err != nil {
		return r.unscheduled(ctx, key, ws, err)
	}
	if r.Scheduler.IsElsewhere(ws) {
		return r.createElsewhere(ctx, ws, name, lc)
	}
	if err := r.Scheduler.PrepareHome(ctx, key.Cluster, name, ws.UID); err != nil {
		return err
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

// unscheduled sets a condition with the reason why a workspace has no shard or no type, until one of these changes.
func (r *reconciler) unscheduled(ctx context.Context, key informers.Key, ws *tenancyv1alpha1.Workspace, err error) error {
	var impossible scheduling.UnschedulableError
	if apierrors.IsNotFound(err) { // its type
		impossible.Reason = err.Error()
	} else if !errors.As(err, &impossible) {
		return err
	}
	decisionlog.ForChange(ctx, key.Cluster).Info("Workspace cannot be scheduled", decisionlog.Cluster, key.Cluster,
		decisionlog.Name, key.Name, decisionlog.Reason, impossible.Reason)
	r.waiting.Add(key)
	setUnscheduled(ws, impossible)
	return nil
}

func setUnscheduled(ws *tenancyv1alpha1.Workspace, reason error) {
	conditions.Set(&ws.Status.Conditions,
		conditions.FromError(tenancyv1alpha1.WorkspaceScheduled, tenancyv1alpha1.ReasonUnschedulable, reason))
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
		scheduling.RemovePlacement(ws)
	}
	return nil
}

// remove deletes the logical cluster of a workspace that is being deleted, and then the workspace.
func (r *reconciler) remove(ctx context.Context, ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) error {
	ours, held := finalizers(ws)
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
	switch {
	case lc != nil && !held && lc.DeletionTimestamp == nil:
		return r.Clusters.Update(inside, corev1alpha1.LogicalClusterName, &corev1alpha1.LogicalCluster{}, scheduling.MarkDeleted(lc.UID))
	case lc != nil && !held && lc.Status.Phase != corev1alpha1.LogicalClusterPhaseTerminating &&
		lc.Status.Phase != corev1alpha1.LogicalClusterPhaseDeleting:
		return nil // most are deleted before there is anything to show
	case lc == nil && !held:
		return r.delete(ctx, ws)
	}
	return r.showRemoval(ctx, ws, lc)
}

// showRemoval writes into a workspace that is being deleted what its logical cluster waits for. A workspace that was created under the same
// name since is another one.
func (r *reconciler) showRemoval(ctx context.Context, ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) error {
	return r.Workspaces.Update(ctx, ws.Name, &tenancyv1alpha1.Workspace{}, func(obj runtime.Object) error {
		live := obj.(*tenancyv1alpha1.Workspace)
		if live.UID != ws.UID {
			return apierrors.NewConflict(resource, ws.Name, errChanged)
		}
		scheduling.MirrorRemoval(live, lc)
		return nil
	})
}

// finalizers reports whether a workspace has the finalizer of this controller, and whether others hold it.
func finalizers(ws *tenancyv1alpha1.Workspace) (ours, held bool) {
	ours = slices.Contains(ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer)
	return ours, len(ws.Finalizers) > 1 || (len(ws.Finalizers) == 1 && !ours)
}

// delete removes a workspace, whose logical cluster does not exist, unless it has changed.
func (r *reconciler) delete(ctx context.Context, ws *tenancyv1alpha1.Workspace) error {
	return r.Workspaces.Delete(ctx, ws.Name, &tenancyv1alpha1.Workspace{}, func(obj runtime.Object) error {
		if live := obj.(*tenancyv1alpha1.Workspace); live.UID != ws.UID || !slices.Equal(live.Finalizers, ws.Finalizers) {
			return apierrors.NewConflict(resource, ws.Name, errChanged)
		}
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
	if err := scheduling.MarkDeleted(lc.UID)(lc); err != nil {
		return err
	}
	return r.Clusters.Replace(ctx, corev1alpha1.LogicalClusterName, lc, &corev1alpha1.LogicalCluster{})
}

var errChanged = errors.New("the object has changed")

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
