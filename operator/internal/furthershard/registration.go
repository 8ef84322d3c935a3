package furthershard

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// finalizer keeps a Shard until it is removed from kcp.
const finalizer = "operator.kcp.io/registration"

// Registry has the Shard objects in kcp. It is kcpaccess.Registry.
type Registry interface {
	Shard(ctx context.Context, credentials kcpaccess.Credentials, name string) (kcpaccess.Registered, error)
	Cordon(ctx context.Context, credentials kcpaccess.Credentials, name string, cordoned bool) error
	Remove(ctx context.Context, credentials kcpaccess.Credentials, name string, lose bool) error
	Moves
}

// updateFinalizer adds the finalizer to a Shard. Not in the namespace of the operator, which may be deleted with the Shard.
func (r *Reconciler) updateFinalizer(ctx context.Context, sh *v1alpha1.Shard) error {
	if !sh.DeletionTimestamp.IsZero() || sh.Namespace == r.Namespace || controllerutil.ContainsFinalizer(sh, finalizer) {
		return nil
	}
	before := sh.DeepCopy()
	controllerutil.AddFinalizer(sh, finalizer)
	return r.Patch(ctx, sh, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// reasonStopping is the reason of a deleted Shard that is removed from kcp, and whose pods end.
const reasonStopping = "Stopping"

// remove removes a Shard that is being deleted from kcp, and then its finalizer. An error says why the Shard remains, with everything that
// it runs. A pod that restarts registers the shard again, so the Shard is removed from kcp once more when the pods have ended.
func (r *Reconciler) remove(ctx context.Context, sh *v1alpha1.Shard, rs *v1alpha1.RootShard) error {
	if !controllerutil.ContainsFinalizer(sh, finalizer) {
		return nil
	}
	s := r.scope(sh, rs)
	stopped, err := s.Stopped(ctx)
	if err != nil {
		return err
	}
	removed, err := r.deregister(ctx, sh, rs)
	if err != nil {
		return err
	}
	if removed && !stopped {
		return cmp.Or(s.Stop(ctx), conditions.Unwatched(component.Again,
			conditions.Wait(reasonStopping, "the Shard is being deleted: the shard is removed from kcp, and its pods end")))
	}
	before := sh.DeepCopy()
	controllerutil.RemoveFinalizer(sh, finalizer)
	return client.IgnoreNotFound(r.Patch(ctx, sh, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// deregister removes the Shard object from kcp, which refuses that while the shard holds logical clusters, and reports whether kcp does not
// have it now. Nothing needs to be removed from a kcp that does not exist any more, or that the shard has never reached.
func (r *Reconciler) deregister(ctx context.Context, sh *v1alpha1.Shard, rs *v1alpha1.RootShard) (removed bool, err error) {
	if rs == nil || !rs.DeletionTimestamp.IsZero() ||
		sh.Status.Image == "" && !meta.IsStatusConditionTrue(rs.Status.Conditions, v1alpha1.ConditionAvailable) {
		return false, nil
	}
	lose := sh.Annotations[kcpaccess.LoseAnnotation] == "true"
	credentials, err := installation.Credentials(ctx, r.Client, shard.Root(rs))
	if err == nil {
		err = r.Registry.Cordon(ctx, credentials, sh.Name, true) // no workspace may be scheduled to it between two attempts
	}
	if err == nil {
		err = r.Registry.Remove(ctx, credentials, sh.Name, lose)
	}
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, conditions.Unwatched(component.Again,
			conditions.Stall("HoldsLogicalClusters", "the Shard is being deleted, and still runs: %v", err))
	case lose:
		r.Recorder.Eventf(sh, nil, corev1.EventTypeWarning, "StillRegistered", "Delete",
			"kcp does not answer, and still has the shard: delete its Shard object in the workspace root: %.800v", err)
		return false, nil
	}
	return false, conditions.Unwatched(component.Again, conditions.Wait("RootShardUnreachable",
		"the Shard is being deleted, and waits for RootShard %s, to remove the shard from kcp: %v", rs.Name, err))
}

// registered checks the Shard object in kcp: other shards and front proxies use its URL. It also stops and starts the scheduling of
// workspaces to the shard. It returns what it has read, which the watch compares, and nil if it must be called again in any case.
func (s *scope) registered(ctx context.Context, registry Registry) *view {
	if !s.Report.Met(v1alpha1.ConditionAvailable) {
		if s.object.Spec.Drain {
			s.setDrained(metav1.ConditionFalse, "NotAvailable", "the shard must run so that its logical clusters can move, see condition Available")
		}
		return nil // a shard registers when it starts
	}
	credentials, err := installation.Credentials(ctx, s.Client, s.root)
	if err != nil {
		s.Report.Set(v1alpha1.ConditionRegistered, err)
		return nil
	}
	found, err := registry.Shard(ctx, credentials, s.object.Name)
	seen := &view{credentials, newAnswer(found, err)}
	drained := s.object.Spec.Drain || !s.object.DeletionTimestamp.IsZero()
	if err == nil && found.Cordoned != drained {
		err = registry.Cordon(ctx, credentials, s.object.Name, drained)
		seen = nil
	}
	if err == nil {
		s.object.Status.LogicalClusters = &found.LogicalClusters
		s.drain(ctx, registry, credentials)
	}
	s.Report.Set(v1alpha1.ConditionRegistered, s.state(found, err))
	if drained || meta.FindStatusCondition(s.object.Status.Conditions, v1alpha1.ConditionDrained) != nil {
		seen = nil // moves of logical clusters do not change the Shard object
	}
	if seen == nil {
		s.After = conditions.Earliest(s.After, component.Again)
	}
	return seen
}

// state returns an error if other shards cannot use the shard.
func (s *scope) state(found kcpaccess.Registered, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return conditions.Wait("NotRegistered", "waiting for the shard to register in kcp: see its log")
	case err != nil:
		return conditions.Wait("RootShardUnreachable", "waiting for RootShard %s, which has the state of the shard: %v", s.rs.Name, err)
	case found.BaseURL != s.shard.BaseURL():
		return conditions.Wait("OtherURL", "waiting for the shard to register with the URL %s, kcp has %s: if another shard has this name, "+
			"choose another one", s.shard.BaseURL(), found.BaseURL)
	case !found.Responds:
		return conditions.Wait("NotResponding", "the root shard does not reach the shard: %s", found.Message)
	}
	return nil
}

// stopping reports whether a deleted Shard remains only until its pods have ended.
func stopping(remains error) bool {
	return remains != nil && conditions.Cause(remains).Reason == reasonStopping
}

// gone reports whether the RootShard of a Shard does not exist.
func gone(missing error) bool {
	var blocked *conditions.Blocked
	return errors.As(missing, &blocked)
}
