package rootshard

import (
	"context"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/installation"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards,verbs=get;list;watch

// finalizer keeps a RootShard while Shards refer to it, because they use its objects.
const finalizer = "operator.kcp.io/shards"

// ofInstallation returns a request for the RootShard that a component refers to, if any.
func ofInstallation(component client.Object) []reconcile.Request {
	var config v1alpha1.RootShardConfig
	switch o := component.(type) {
	case *v1alpha1.Shard:
		config = o.Spec.RootShard
	case *v1alpha1.FrontProxy:
		config = o.Spec.RootShard
	}
	if config.Reference == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: component.GetNamespace(), Name: config.Reference.Name}}}
}

// shards returns the names of the Shards that refer to a RootShard. Shards that are being deleted are not included: otherwise, both could
// wait for each other and block the deletion of their namespace, if kcp does not answer.
func (r *Reconciler) shards(ctx context.Context, rs *v1alpha1.RootShard) ([]string, error) {
	list := &v1alpha1.ShardList{}
	if err := r.List(ctx, list, client.InNamespace(rs.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if shard := &list.Items[i]; installation.Refers(shard.Spec.RootShard, rs) && shard.DeletionTimestamp.IsZero() {
			names = append(names, shard.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// updateFinalizer writes the Shards that refer to a RootShard to its status, and adds or removes its finalizer.
func (r *Reconciler) updateFinalizer(ctx context.Context, rs *v1alpha1.RootShard) error {
	names, err := r.shards(ctx, rs)
	if err != nil {
		return err
	}
	before, held := rs.DeepCopy(), len(names) > 0
	switch {
	case held && rs.DeletionTimestamp.IsZero() && rs.Namespace != r.Namespace: // both may be deleted with this namespace
		controllerutil.AddFinalizer(rs, finalizer)
	case !held:
		controllerutil.RemoveFinalizer(rs, finalizer)
	}
	if !slices.Equal(rs.Finalizers, before.Finalizers) {
		if err := r.Patch(ctx, rs, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	rs.Status.Shards = nil
	for _, name := range names {
		rs.Status.Shards = append(rs.Status.Shards, v1alpha1.ShardReference{Name: name})
	}
	return nil
}

// deleting reports what the deletion of a RootShard waits for. The garbage collector deletes its objects.
func (r *Reconciler) deleting(rs *v1alpha1.RootShard) {
	rs.Status.Phase = v1alpha1.PhaseDeleting
	if len(rs.Status.Shards) == 0 || !controllerutil.ContainsFinalizer(rs, finalizer) {
		return
	}
	var names []string
	for _, shard := range rs.Status.Shards {
		names = append(names, shard.Name)
	}
	report := conditions.NewReport(conditions.Rest)
	report.Set(conditions.Rest, conditions.Stall("ShardsRemain", "Shards still refer to this RootShard: delete %s",
		strings.Join(names, ", ")))
	report.Write(&rs.Status.Conditions, rs.Generation)
	rs.Status.ObservedGeneration = rs.Generation
}
