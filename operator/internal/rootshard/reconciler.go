// Package rootshard reconciles RootShards: it creates certificates, an etcd if the spec requests one, kubeconfigs and pods.
package rootshard

import (
	"context"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=rootshards/finalizers,verbs=update
// +kubebuilder:rbac:groups=operator.kcp.io,resources=etcdclusters,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates;issuers,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cert-manager.io,resources=clusterissuers,verbs=get
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// dependencies of a RootShard, in order. The condition Ready has the message of the first one that is not met.
var dependencies = []string{
	v1alpha1.ConditionReferenceValid, v1alpha1.ConditionCertificatesReady, v1alpha1.ConditionEtcdReady,
	v1alpha1.ConditionAvailable, conditions.Rest,
}

// again is the interval of checks for changes that no watch reports.
const again = 30 * time.Second

// Reconciler reconciles RootShards.
type Reconciler struct {
	client.Client
	// Live bypasses the cache. With an outdated status from the cache, a necessary write of the status could be skipped.
	Live     client.Reader
	Recorder events.EventRecorder
	// DefaultImage is the image of shards whose spec has none, as repository:tag.
	DefaultImage string
	// Namespace is the namespace of the operator. Empty: unknown.
	Namespace string
	// Pods are the limits of this installation for pods.
	Pods workload.Security
	// Shards finds the Shards that refer to RootShards. Nil: there are none.
	Shards *Shards
	// EtcdChecker checks external etcds. Nil: they count as available.
	EtcdChecker *EtcdChecker
}

// scope is the state of one reconciliation of a RootShard.
type scope struct {
	*Reconciler
	rs     *v1alpha1.RootShard
	shard  *shard.Shard
	report *conditions.Report
	// set is the applied StatefulSet, or nil.
	set *appsv1.StatefulSet
	// after is the time until the next reconciliation that no watch triggers, such as the time until the renewal of a certificate is overdue.
	after    time.Duration
	rotation rotation
	found    map[string]*corev1.Secret
}

// Reconcile takes all steps that are possible now, and reports in the status what it waits for.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	rs := &v1alpha1.RootShard{}
	if err := r.Live.Get(ctx, request.NamespacedName, rs); err != nil {
		if r.EtcdChecker != nil && apierrors.IsNotFound(err) {
			r.EtcdChecker.Forget(request.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := rs.DeepCopy()
	result, err := r.updateFinalizer(ctx, rs)
	if err != nil {
		return ctrl.Result{}, err
	}
	before.ObjectMeta = rs.ObjectMeta // updateFinalizer may have changed it
	if !rs.DeletionTimestamp.IsZero() {
		r.deleting(rs)
		return result, conditions.Save(ctx, r.Client, r.Recorder, before, rs, before.Status.Conditions, rs.Status.Conditions)
	}
	s := &scope{Reconciler: r, rs: rs, shard: shard.Root(rs), report: conditions.NewReport(dependencies...),
		found: map[string]*corev1.Secret{}}
	s.reconcile(ctx)
	s.summarize()
	if err := conditions.Save(ctx, r.Client, r.Recorder, before, rs, before.Status.Conditions, rs.Status.Conditions); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: conditions.Earliest(result.RequeueAfter, s.report.After(), s.after)}, s.report.Err()
}

// reconcile takes the steps. A step that waits or fails blocks only the steps that need its result.
func (s *scope) reconcile(ctx context.Context) {
	s.report.Set(v1alpha1.ConditionCertificatesReady, s.certificates(ctx))
	s.report.Set(v1alpha1.ConditionEtcdReady, s.etcd(ctx))
	s.report.Set(v1alpha1.ConditionReferenceValid, s.references(ctx))
	s.report.Set(conditions.Rest, s.maintainPods(ctx))
	unmade := s.secrets(ctx)
	s.report.Set(v1alpha1.ConditionCertificatesReady, unmade)
	s.workload(ctx, unmade == nil)
	s.report.Set(v1alpha1.ConditionEtcdReady, s.checkEtcd(ctx))
	if unmade == nil {
		s.reportRotation() // after workload, because an error that blocks replacing pods is reported first
	}
	s.available(ctx)
}

func (s *scope) summarize() {
	status := &s.rs.Status
	s.report.Write(&status.Conditions, s.rs.Generation)
	if fields := withoutEffect(&s.rs.Spec); len(fields) > 0 && status.ObservedGeneration != s.rs.Generation {
		s.Recorder.Eventf(s.rs, nil, corev1.EventTypeWarning, "FieldsIgnored", "Check",
			"these fields are accepted for compatibility and have no effect: %s",
			strings.Join(fields, "; "))
	}
	status.ObservedGeneration = s.rs.Generation
	status.URL = s.shard.ExternalURL()
	switch {
	case s.report.Met(v1alpha1.ConditionAvailable):
		status.Phase = v1alpha1.PhaseRunning
	case s.report.Stalled():
		status.Phase = v1alpha1.PhaseFailed
	default:
		status.Phase = v1alpha1.PhaseProvisioning
	}
}
