// Package kubeconfig reconciles Kubeconfigs: it creates a client certificate, a Secret with a kubeconfig, and role bindings inside of kcp,
// and revokes all of these when the Kubeconfig is deleted.
package kubeconfig

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=kubeconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=kubeconfigs/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=kubeconfigs/finalizers,verbs=update
// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards;shards;frontproxies,verbs=get;list;watch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cert-manager.io,resources=issuers,verbs=get;list;watch
// +kubebuilder:rbac:groups=cert-manager.io,resources=clusterissuers,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// finalizer was on Kubeconfigs of earlier versions. It has no use and is removed.
	finalizer = "operator.kcp.io/cleanup-rbac"
	// again is the interval of retries for roles that could not be bound or unbound, because no watch reports when kcp or the workspace
	// is available.
	again = 10 * time.Second
)

var dependencies = []string{
	v1alpha1.ConditionReferenceValid, v1alpha1.ConditionCertificatesReady, v1alpha1.ConditionAvailable, conditions.Rest,
}

// Binder binds roles in a workspace.
type Binder func(ctx context.Context, credentials kcpaccess.Credentials, workspace string, roles kcpaccess.Roles) error

// Reconciler reconciles Kubeconfigs.
type Reconciler struct {
	client.Client
	// Live bypasses the cache. With an outdated status from the cache, a necessary write of the status could be skipped.
	Live     client.Reader
	Recorder events.EventRecorder
	// Bind is kcpaccess.Bind.
	Bind Binder
}

// scope is the state of one reconciliation of a Kubeconfig.
type scope struct {
	*Reconciler
	kubeconfig *v1alpha1.Kubeconfig
	// rs is the RootShard of the target; root is its form for builders of objects.
	rs   *v1alpha1.RootShard
	root *shard.Shard
	// endpoint is the target.
	endpoint endpoint
	report   *conditions.Report
	// after is the time until the renewal of the certificate is overdue.
	after time.Duration
}

// Reconcile takes all steps that are possible now, and reports in the status what it waits for.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	k := &v1alpha1.Kubeconfig{}
	if err := r.Live.Get(ctx, request.NamespacedName, k); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s := &scope{Reconciler: r, kubeconfig: k, report: conditions.NewReport(dependencies...)}
	if controllerutil.ContainsFinalizer(k, finalizer) {
		before := k.DeepCopy()
		controllerutil.RemoveFinalizer(k, finalizer)
		if err := r.Patch(ctx, k, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if !k.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := k.DeepCopy()
	s.reconcile(ctx)
	s.summarize()
	if err := conditions.Save(ctx, r.Client, r.Recorder, before, k, before.Status.Conditions, k.Status.Conditions); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: conditions.Earliest(s.report.After(), s.after)}, s.report.Err()
}

// reconcile takes the steps, each of which needs the one before, except that roles are bound even without a certificate.
func (s *scope) reconcile(ctx context.Context) {
	s.report.Set(v1alpha1.ConditionReferenceValid, s.target(ctx))
	if !s.report.Met(v1alpha1.ConditionReferenceValid) {
		return
	}
	s.report.Set(v1alpha1.ConditionCertificatesReady, s.certificate(ctx))
	if s.report.Met(v1alpha1.ConditionCertificatesReady) {
		s.report.Set(v1alpha1.ConditionAvailable, s.secret(ctx))
	}
	s.report.Set(conditions.Rest, s.roles(ctx))
}

func (s *scope) summarize() {
	status := &s.kubeconfig.Status
	s.report.Write(&status.Conditions, s.kubeconfig.Generation)
	status.ObservedGeneration = s.kubeconfig.Generation
	switch {
	case s.report.Ready():
		status.Phase = v1alpha1.PhaseReady
	case s.report.Stalled():
		status.Phase = v1alpha1.PhaseFailed
	default:
		status.Phase = v1alpha1.PhaseProvisioning
	}
}
