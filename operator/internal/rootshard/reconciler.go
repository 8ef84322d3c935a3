// Package rootshard reconciles RootShards: it creates certificates, an etcd if the spec requests one, kubeconfigs and pods.
package rootshard

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/pki"
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
// +kubebuilder:rbac:groups=autoscaling,resources=horizontalpodautoscalers,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=monitoring.coreos.com,resources=servicemonitors,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// prerequisites are the conditions of a RootShard without which pods are not changed, in order. The condition Ready has the message of the
// first one that is not met.
var prerequisites = []string{
	v1alpha1.ConditionReferenceValid, v1alpha1.ConditionCertificatesReady, v1alpha1.ConditionEtcdReady,
}

// Reconciler reconciles RootShards.
type Reconciler struct {
	component.Environment
}

// scope is the state of one reconciliation of a RootShard.
type scope struct {
	component.Scope
	rs    *v1alpha1.RootShard
	shard *shard.Shard
	// peers are the CAs of the certificates of other processes of the installation.
	peers map[string][]byte
}

// Reconcile takes all steps that are possible now, and reports in the status what it waits for.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	rs := &v1alpha1.RootShard{}
	if exists, err := r.Read(ctx, request, rs); !exists {
		return ctrl.Result{}, err
	}
	before := rs.DeepCopy()
	if err := r.updateFinalizer(ctx, rs); err != nil {
		return ctrl.Result{}, err
	}
	before.ObjectMeta = rs.ObjectMeta // updateFinalizer may have changed it
	if !rs.DeletionTimestamp.IsZero() {
		r.deleting(rs)
		return ctrl.Result{}, conditions.Save(ctx, r.Client, r.Recorder, before, rs, before.Status.Conditions, rs.Status.Conditions)
	}
	s, err := r.scope(ctx, rs)
	if err != nil {
		return ctrl.Result{}, err
	}
	s.reconcile(ctx)
	s.Ignored(withoutEffect(&rs.Spec))
	rs.Status.URL = s.shard.ExternalURL()
	return s.End(ctx, before, before.Status.Conditions)
}

func (r *Reconciler) scope(ctx context.Context, rs *v1alpha1.RootShard) (*scope, error) {
	built, err := shard.Root(rs), error(nil)
	if built.Sharded, err = r.sharded(ctx, rs, built); err != nil {
		return nil, err
	}
	built.Cache = installation.Cache(rs)
	s := &scope{rs: rs, shard: built, Scope: component.Scope{
		Environment: &r.Environment, Owner: rs, Spec: &rs.Spec.ComponentSpec, Status: &rs.Status.ComponentStatus,
		Workload: built.WorkloadName(), Container: shard.Container, Labels: built.Labels(), Selector: built.Selector(),
		Prerequisites: prerequisites,
		Turn:          func(ctx context.Context, image string) error { return installation.RootTurn(ctx, r.Client, rs, image) },
	}}
	s.Begin()
	return s, nil
}

// reconcile takes the steps. A step that waits or fails blocks only the steps that need its result.
func (s *scope) reconcile(ctx context.Context) {
	cache := installation.CheckCache(ctx, s.Client, s.rs, s.shard.Cache) // certificates need its template
	s.Report.Set(v1alpha1.ConditionReferenceValid, s.views(ctx))
	s.Report.Set(v1alpha1.ConditionCertificatesReady, s.certificates(ctx))
	s.Report.Set(v1alpha1.ConditionEtcdReady, s.UseEtcd(ctx, s.rs.Spec.Etcd, s.rs.Spec.ClusterDomain))
	s.shard.Etcd = s.Etcd
	s.Report.Set(v1alpha1.ConditionReferenceValid, s.references(ctx))
	s.Report.Set(v1alpha1.ConditionReferenceValid, cache)
	again, unknown := installation.SharedEtcd(ctx, s.Client, s.rs)
	s.After = conditions.Earliest(s.After, again)
	s.Report.Set(conditions.Rest, unknown)
	s.Report.Set(conditions.Rest, s.MaintainPods(ctx))
	unmade := s.secrets(ctx)
	s.Report.Set(v1alpha1.ConditionCertificatesReady, unmade)
	s.Run(ctx, unmade == nil, s.build)
	s.Report.Set(v1alpha1.ConditionEtcdReady, s.CheckEtcd(ctx))
	if unmade == nil {
		s.ReportRotation() // after Run, because an error that blocks replacing pods is reported first
	}
	s.Available(ctx)
}

// views finds what serves the virtual workspaces of the shard.
func (s *scope) views(ctx context.Context) error {
	views, err := installation.ViewsOf(ctx, s.Client, s.shard)
	if views.URL != "" {
		s.Related = append(s.Related, views.URL)
	}
	s.shard.ViewsURL, s.Follower, s.FollowerSelector = views.URL, views.Workload, views.Selector
	return err
}

func (s *scope) build(image string, replicas *int32) *workload.Component {
	s.shard.Image, s.shard.Replicas, s.shard.Inputs = image, replicas, s.Inputs
	return shard.Component(s.shard)
}

// certificates applies the CAs and the certificates of the shard.
func (s *scope) certificates(ctx context.Context) error {
	spec := s.rs.Spec.Certificates
	issuers, authorities := shard.Authorities(s.shard, spec)
	err := s.Certificates(ctx, component.Certificates{Issuers: issuers, Authorities: authorities, Leaves: shard.Leaves(s.shard),
		Unwanted: shard.Unwanted(s.shard, spec), Others: s.others(), Field: s.issuerField})
	if given := s.Authority(ctx, spec); given != nil {
		return given
	}
	return err
}

// others returns the issuers of other objects of the operator.
func (s *scope) others() []string {
	if s.shard.Cache == nil {
		return nil
	}
	return []string{s.shard.Cache.Issuer}
}

// issuerField returns the field that names the issuer of a certificate.
func (s *scope) issuerField(certificate string) string {
	for name, template := range s.rs.Spec.CertificateTemplates {
		names := s.shard.Leaf(name) == certificate || name == "root-ca" && certificate == s.rs.Name+"-ca"
		if names && pki.IssuerOf(&template) != nil {
			return "spec.certificateTemplates[" + name + "].spec.issuerRef"
		}
	}
	return "spec.certificates.issuerRef"
}

// references checks the objects in the spec.
func (s *scope) references(ctx context.Context) error {
	if err := installation.CheckEtcd(ctx, s.Client, s.rs); err != nil {
		return err
	}
	return s.References(ctx, shard.References(s.shard))
}

// withoutEffect returns the fields that are set and have no effect, with the reason.
func withoutEffect(spec *v1alpha1.RootShardSpec) []string {
	var fields []string
	add := func(set bool, field string) {
		if set {
			fields = append(fields, field)
		}
	}
	add(spec.Proxy != nil, "spec.proxy: the operator connects to the shard directly")
	add(spec.Cache != nil && spec.Cache.Embedded != nil, "spec.cache.embedded: the root shard contains the cache")
	if auth := spec.Auth; auth != nil {
		add(auth.OIDC != nil && auth.OIDC.ClientSecret != "", "spec.auth.oidc.clientSecret: the server does not need it")
		add(len(auth.DropGroups)+len(auth.PassOnGroups) > 0, "spec.auth.dropGroups and passOnGroups: they apply to front proxies")
	}
	return fields
}
