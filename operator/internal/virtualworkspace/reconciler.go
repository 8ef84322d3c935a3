// Package virtualworkspace reports in the status of VirtualWorkspaces that the operator does not run them.
package virtualworkspace

import (
	"context"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces/status,verbs=get;patch

// Reconciler reconciles VirtualWorkspaces.
type Reconciler struct {
	client.Client
	// Live bypasses the cache.
	Live     client.Reader
	Recorder events.EventRecorder
}

// Reconcile reports that the VirtualWorkspace has no pods, and what serves virtual workspaces instead.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	v := &v1alpha1.VirtualWorkspace{}
	if err := r.Live.Get(ctx, request.NamespacedName, v); err != nil || !v.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := v.DeepCopy()
	report := conditions.NewReport(v1alpha1.ConditionAvailable)
	report.Set(
		v1alpha1.ConditionAvailable,
		conditions.Stall("NotSupported", "this version of the operator does not run virtual workspaces in "+
			"pods of their own: delete this object, and remove spec.kcpVirtualWorkspace of the shard, which then serves them"),
	)
	report.Write(&v.Status.Conditions, v.Generation)
	v.Status.ObservedGeneration, v.Status.Phase = v.Generation, v1alpha1.PhaseFailed
	return ctrl.Result{}, conditions.Save(ctx, r.Client, r.Recorder, before, v, before.Status.Conditions, v.Status.Conditions)
}

// Setup registers the reconciler.
func (r *Reconciler) Setup(_ context.Context, mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("virtualworkspace").
		For(&v1alpha1.VirtualWorkspace{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}
