package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// callTimeout limits a call to another shard.
	callTimeout = 10 * time.Second
	// removalInterval is how often the shard of a workspace that is being deleted is called again. It reports the deletion by itself, so this
	// is for reports that are lost.
	removalInterval = time.Minute
)

// reconcileElsewhere reconciles a workspace whose logical cluster is, or will be, on another shard. That shard reports the state, so only
// the creation and the deletion are left to do.
func (r *reconciler) reconcileElsewhere(ctx context.Context, key informers.Key, ws *tenancyv1alpha1.Workspace) error {
	if r.settled(ws, nil) {
		return nil
	}
	if ws.DeletionTimestamp != nil {
		return runner.IgnoreNotFound(r.removeElsewhere(ctx, key, ws))
	}
	if wait := r.requestContinues(ws); wait > 0 {
		r.controller.EnqueueAfter(key, wait)
		return nil
	}
	live := &tenancyv1alpha1.Workspace{}
	if err := r.Workspaces.Get(ctx, key.Name, live); err != nil {
		return runner.IgnoreNotFound(err)
	}
	if live.Spec.Cluster != "" || live.DeletionTimestamp != nil {
		return nil // the informer will have it
	}
	wanted := live.DeepCopy()
	waits := r.schedule(ctx, key, wanted)
	if err := runner.IgnoreNotFound(r.commit(ctx, live, wanted)); err != nil {
		return err
	}
	return waits
}

// requestContinues returns how long the request that creates a workspace may still create its logical cluster on another shard. It is
// zero if the controller may do it.
func (r *reconciler) requestContinues(ws *tenancyv1alpha1.Workspace) time.Duration {
	if ws.DeletionTimestamp != nil || ws.Spec.Cluster != "" || !r.Scheduler.IsElsewhere(ws) {
		return 0
	}
	age := r.Clock.Since(ws.CreationTimestamp.Time)
	if age >= scheduling.CreationBudget {
		return 0
	}
	return scheduling.CreationBudget - age + time.Second
}

// createElsewhere creates the logical cluster of a workspace on its shard. After an error it is called again with the same name: the shard
// may have created it.
func (r *reconciler) createElsewhere(ctx context.Context, ws *tenancyv1alpha1.Workspace, name logicalcluster.Name,
	lc *corev1alpha1.LogicalCluster) error {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	created, err := r.Scheduler.Remote.Create(limited, r.Scheduler.ShardOf(ws), name, lc)
	switch {
	case apierrors.IsAlreadyExists(err):
		scheduling.RemovePlacement(ws)
		return nil
	case err != nil:
		setUnscheduled(ws, fmt.Errorf("waiting for shard %q to create logical cluster %s: %w", r.Scheduler.ShardOf(ws), name, cause(err)))
		return err
	}
	r.Scheduler.SetLocation(ws, name, created)
	return nil
}

// removeElsewhere lets the shard of the logical cluster of a workspace delete that, and then deletes the workspace.
func (r *reconciler) removeElsewhere(ctx context.Context, key informers.Key, ws *tenancyv1alpha1.Workspace) error {
	ours, held := finalizers(ws)
	if held {
		return r.showRemoval(ctx, ws, &corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{Terminators: ws.Status.Terminators}})
	}
	if !ours {
		return r.delete(ctx, ws)
	}
	live := &tenancyv1alpha1.Workspace{} // the informer may not have the last name
	if err := r.Workspaces.Get(ctx, ws.Name, live); err != nil {
		return err
	}
	if live.UID != ws.UID { // the workspace is gone, and this is another one, which is not deleted
		return nil
	}
	name := clusterOf(live)
	if name == "" {
		return r.delete(ctx, live)
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lc, err := r.Elsewhere(limited, live, name)
	switch {
	case err != nil:
		if shown := r.showWaiting(ctx, ws, name, err); shown != nil {
			return shown
		}
		return err
	case lc == nil:
		return r.delete(ctx, live)
	}
	r.controller.EnqueueAfter(key, removalInterval)
	return r.showRemoval(ctx, ws, lc)
}

// showWaiting writes into a workspace that is being deleted why its shard does not delete the logical cluster.
func (r *reconciler) showWaiting(ctx context.Context, ws *tenancyv1alpha1.Workspace, name logicalcluster.Name, reason error) error {
	return r.showRemoval(ctx, ws, &corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{
		Terminators: ws.Status.Terminators,
		Conditions: []corev1alpha1.Condition{conditions.FromError(tenancyv1alpha1.WorkspaceContentDeleted, "WaitingForShard",
			fmt.Errorf("waiting for shard %q to delete logical cluster %s: %w", r.Scheduler.ShardOf(ws), name, cause(reason)))},
	}})
}

var errSilent = errors.New("it does not respond")

// cause returns an error for conditions, which is the same each time that a shard does not respond.
func cause(err error) error {
	if peers.IsUnreachable(err) {
		return errSilent
	}
	return err
}

// stranded returns an error for a workspace that is being deleted, whose logical cluster is on another shard which this server, without
// sharding, does not know.
func (r *reconciler) stranded(ws *tenancyv1alpha1.Workspace) error {
	shard := ws.Annotations[tenancyv1alpha1.ShardAnnotation]
	if r.Scheduler.Remote != nil || ws.DeletionTimestamp == nil || ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] == "" ||
		shard == r.Scheduler.ShardName {
		return nil
	}
	return fmt.Errorf("logical cluster %s is on shard %q: start this server with the flags of its installation", ws.Spec.Cluster, shard)
}
