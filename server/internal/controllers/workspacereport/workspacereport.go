// Package workspacereport reports the state of logical clusters to the shards that hold their Workspaces. Nothing polls: a change is
// reported until it is accepted. When a server becomes leader, or another shard has another store, both shards compare everything.
package workspacereport

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/shards/workspaces"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// callTimeout limits a call to another shard.
const callTimeout = 10 * time.Second

// Calls are the calls to other shards. workspaces.Calls implements it.
type Calls interface {
	Report(ctx context.Context, shard string, page []workspaces.State) ([]workspaces.Verdict, error)
	Compare(ctx context.Context, shard string, page []*tenancyv1alpha1.Workspace) error
	OwnerShard(ctx context.Context, lc *corev1alpha1.LogicalCluster, moved bool) (string, error)
}

// Inputs of the controllers. Storage reaches the cluster in each call's context.
type Inputs struct {
	Set      *informers.Set
	Calls    Calls
	Clusters storage.Objects
	// ShardName is the name of this shard.
	ShardName string
	Orphans   *Orphans
	// Changes is the controller of New, for NewComparer.
	Changes *runner.Controller
}

type reconciler struct {
	Inputs
	controller *runner.Controller

	mu sync.Mutex
	// deleted are the last states of deleted clusters until their deletion is accepted.
	deleted map[informers.Key]*corev1alpha1.LogicalCluster
}

// New returns the controller that reports changes. Its keys are LogicalClusters.
func New(in Inputs) *runner.Controller {
	r := newReconciler(in)
	in.Set.LogicalClusters.AddHandlerForChanges(r.handle)
	return r.controller
}

func newReconciler(in Inputs) *reconciler {
	r := &reconciler{Inputs: in, deleted: map[informers.Key]*corev1alpha1.LogicalCluster{}}
	r.controller = runner.New("workspacereport", 16, r.reconcile)
	r.controller.ExpectFailures()
	return r
}

// handle enqueues a cluster whose state has changed. The shard of a Workspace receives the first state in the response to the creation, and
// those from before this server became leader from the comparison.
func (r *reconciler) handle(old, obj runtime.Object) {
	if old == nil {
		return
	}
	before := old.(*corev1alpha1.LogicalCluster)
	if !r.isForOther(before) {
		return
	}
	key := informers.Key{Cluster: logicalcluster.Of(before), Name: before.Name}
	if obj == nil {
		r.mu.Lock()
		r.deleted[key] = before
		r.mu.Unlock()
	} else if reflect.DeepEqual(workspaces.StateOf(before), workspaces.StateOf(obj.(*corev1alpha1.LogicalCluster))) {
		return
	}
	r.controller.Enqueue(key)
}

// isForOther reports whether the Workspace of a cluster is on another shard.
func (in Inputs) isForOther(lc *corev1alpha1.LogicalCluster) bool {
	owner := lc.Spec.Owner
	if owner == nil || owner.Resource != "workspaces" {
		return false
	}
	_, err := in.Set.LogicalClusters.GetLocal(logicalcluster.Name(owner.Cluster), "", corev1alpha1.LogicalClusterName)
	return apierrors.IsNotFound(err)
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	if err := r.reportDeletion(ctx, key); err != nil {
		return err
	}
	lc, err := r.Set.LogicalClusters.GetLocal(key.Cluster, "", key.Name)
	if err != nil || !r.isForOther(lc) {
		return runner.IgnoreNotFound(err)
	}
	return r.report(ctx, key, lc, workspaces.StateOf(lc))
}

// reportDeletion reports the deletion of a cluster until it is accepted, also if the next cluster of the name exists already.
func (r *reconciler) reportDeletion(ctx context.Context, key informers.Key) error {
	r.mu.Lock()
	last := r.deleted[key]
	r.mu.Unlock()
	if last == nil {
		return nil
	}
	state := workspaces.StateOf(last)
	state.Existence = workspaces.Deleted
	if err := r.report(ctx, key, last, state); err != nil {
		return err
	}
	r.Orphans.set(key.Cluster, false)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deleted[key] == last {
		delete(r.deleted, key)
	}
	return nil
}

// report reports one state to the shard that was last seen to hold the Workspace and, if it no longer holds it, to the one that does.
func (r *reconciler) report(ctx context.Context, key informers.Key, lc *corev1alpha1.LogicalCluster, state workspaces.State) error {
	for _, moved := range []bool{false, true} {
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		shard, err := r.Calls.OwnerShard(limited, lc, moved)
		if err != nil {
			return err
		}
		given, err := r.Calls.Report(limited, shard, []workspaces.State{state})
		if err != nil {
			return err
		}
		switch verdict := given[0]; {
		case verdict == workspaces.NotHeld && !moved:
			continue
		case verdict == workspaces.Failed || verdict == workspaces.NotHeld:
			return fmt.Errorf("reporting the state of logical cluster %s to shard %q: %s", key.Cluster, shard, verdict)
		case moved && state.Existence == workspaces.Exists:
			r.note(ctx, key, verdict)
			return r.remember(ctx, lc, shard)
		default:
			r.note(ctx, key, verdict)
			return nil
		}
	}
	return nil
}

// note records whether a cluster is an orphan, which is never a reason to delete it.
func (in Inputs) note(ctx context.Context, key informers.Key, verdict workspaces.Verdict) {
	orphan := verdict == workspaces.Orphan || verdict == workspaces.Refused
	if in.Orphans.set(key.Cluster, orphan) && orphan {
		decisionlog.ForChange(ctx, key.Cluster).Info("The logical cluster has no Workspace; keeping it", decisionlog.Cluster, key.Cluster,
			decisionlog.Reason, verdict)
	}
}

// remember records the shard that holds the Workspace of a cluster.
func (r *reconciler) remember(ctx context.Context, lc *corev1alpha1.LogicalCluster, shard string) error {
	inside := logicalcluster.WithName(ctx, logicalcluster.Of(lc))
	return runner.IgnoreNotFound(r.Clusters.Update(inside, lc.Name, &corev1alpha1.LogicalCluster{}, func(obj runtime.Object) error {
		if live := obj.(*corev1alpha1.LogicalCluster); live.UID == lc.UID {
			live.Annotations[tenancyv1alpha1.OwnerShardAnnotation] = shard
		}
		return nil
	}))
}
