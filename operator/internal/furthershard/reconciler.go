// Package furthershard reconciles Shards: it creates certificates, an etcd if the spec requests one, and pods, with the CAs of the
// RootShard.
package furthershard

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards/finalizers,verbs=update

var prerequisites = []string{
	v1alpha1.ConditionReferenceValid, v1alpha1.ConditionCertificatesReady, v1alpha1.ConditionEtcdReady,
}

// Reconciler reconciles Shards.
type Reconciler struct {
	component.Environment
	// Registry has the Shard objects in kcp. Nil: they are not checked, and Shards are deleted at once.
	Registry Registry

	watch watch
}

// scope is the state of one reconciliation of a Shard.
type scope struct {
	component.Scope
	object *v1alpha1.Shard
	// rs is the RootShard of the installation, and root its form for builders of objects.
	rs    *v1alpha1.RootShard
	root  *shard.Shard
	shard *shard.Shard
}

// Reconcile takes all steps that are possible now, and reports in the status what it waits for.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	sh := &v1alpha1.Shard{}
	if exists, err := r.Read(ctx, request, sh); !exists {
		r.watch.set(request.NamespacedName, nil)
		return ctrl.Result{}, err
	}
	rs, missing := installation.Root(ctx, r.Client, sh.Namespace, "rootShard.ref", sh.Spec.RootShard.Reference)
	if missing != nil && !gone(missing) {
		return ctrl.Result{}, missing
	}
	remains, err := r.lifecycle(ctx, sh, rs)
	if err != nil || !sh.DeletionTimestamp.IsZero() && remains == nil {
		return ctrl.Result{}, err // the garbage collector deletes the objects of a deleted Shard
	}
	before := sh.DeepCopy()
	s := r.scope(sh, rs)
	if remains != nil {
		s.Report.Set(v1alpha1.ConditionRegistered, remains)
	}
	var seen *view
	switch {
	case missing != nil:
		s.Report.Set(v1alpha1.ConditionReferenceValid, missing)
		s.Available(ctx)
	case stopping(remains):
		s.Report.Set(conditions.Rest, s.MaintainPods(ctx)) // also those of nodes that do not respond
		s.Report.Set(v1alpha1.ConditionAvailable, remains)
	default:
		s.reconcile(ctx)
		if r.Registry != nil {
			seen = s.registered(ctx, r.Registry)
		}
	}
	r.watch.set(request.NamespacedName, seen)
	s.Ignored(withoutEffect(&sh.Spec))
	sh.Status.URL = s.shard.BaseURL()
	return s.End(ctx, before, before.Status.Conditions)
}

// lifecycle adds the finalizer of a Shard, or removes it and the shard from kcp. It returns why a deleted Shard remains.
func (r *Reconciler) lifecycle(ctx context.Context, sh *v1alpha1.Shard, rs *v1alpha1.RootShard) (remains, err error) {
	switch {
	case r.Registry == nil:
		return nil, nil
	case sh.DeletionTimestamp.IsZero():
		return nil, r.updateFinalizer(ctx, sh)
	}
	err = r.remove(ctx, sh, rs)
	if blocked := (*conditions.Blocked)(nil); errors.As(err, &blocked) {
		return err, nil
	}
	return nil, err
}

// scope returns the scope of a Shard. Its RootShard may be nil.
func (r *Reconciler) scope(sh *v1alpha1.Shard, rs *v1alpha1.RootShard) *scope {
	known := cmp.Or(rs, &v1alpha1.RootShard{})
	built, root := shard.Further(sh, known), shard.Root(known)
	root.Sharded = true
	built.Cache = installation.Cache(known)
	s := &scope{object: sh, rs: rs, root: root, shard: built, Scope: component.Scope{
		Environment: &r.Environment, Owner: sh, Spec: &sh.Spec.ComponentSpec, Status: &sh.Status.ComponentStatus,
		Workload: built.WorkloadName(), Container: shard.Container, Labels: built.Labels(), Selector: built.Selector(),
		Follows: known.Status.Image, Prerequisites: prerequisites,
		Related: []any{built.ExternalURL(), root.BaseURL(), installation.CacheName(known.Spec.Cache)},
	}}
	s.Turn = func(ctx context.Context, image string) error {
		return installation.PartTurn(ctx, r.Client, known, sh, sh.Spec.Image, image)
	}
	if r.Registry != nil {
		s.Later = []string{v1alpha1.ConditionRegistered}
	}
	s.Begin()
	return s
}

// reconcile takes the steps. A step that waits or fails blocks only the steps that need its result.
func (s *scope) reconcile(ctx context.Context) {
	s.Report.Set(v1alpha1.ConditionReferenceValid, s.installed(ctx))
	s.Report.Set(v1alpha1.ConditionCertificatesReady, s.certificates(ctx))
	s.Report.Set(v1alpha1.ConditionEtcdReady, s.UseEtcd(ctx, s.object.Spec.Etcd, s.object.Spec.ClusterDomain))
	s.shard.Etcd = s.Etcd
	s.Report.Set(v1alpha1.ConditionReferenceValid, s.References(ctx, shard.References(s.shard)))
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

func (s *scope) build(image string, replicas *int32) *workload.Component {
	s.shard.Image, s.shard.Replicas, s.shard.Inputs = image, replicas, s.Inputs
	return shard.Component(s.shard)
}

// installed checks what the Shard has in common with its installation.
func (s *scope) installed(ctx context.Context) error {
	views, err := installation.ViewsOf(ctx, s.Client, s.shard)
	if err != nil {
		return err
	}
	if views.URL != "" {
		s.Related = append(s.Related, views.URL)
	}
	s.shard.ViewsURL, s.Follower, s.FollowerSelector = views.URL, views.Workload, views.Selector
	own, all := installation.CacheName(s.object.Spec.Cache), installation.CacheName(s.rs.Spec.Cache)
	if own != "" && own != all {
		return conditions.Stall("OtherCache", "spec.cache.ref: all shards of an installation use one cache server: remove the field, or set it "+
			"to that of RootShard %s, which is %q", s.rs.Name, all)
	}
	return cmp.Or(installation.CheckCache(ctx, s.Client, s.rs, s.shard.Cache), installation.CheckEtcd(ctx, s.Client, s.object))
}

// certificates applies the certificates of the shard, which the CAs of the RootShard and of the cache server sign.
func (s *scope) certificates(ctx context.Context) error {
	others := []string{s.root.ServerCA(), s.root.ClientCA(), s.root.PeerCA(), s.root.Authority("service-account-ca")}
	if s.shard.Cache != nil {
		others = append(others, s.shard.Cache.Issuer)
	}
	return s.Certificates(ctx, component.Certificates{Leaves: shard.Leaves(s.shard), Unwanted: shard.Unwanted(s.shard, nil), Others: others,
		Field: func(certificate string) string {
			for name := range s.object.Spec.CertificateTemplates {
				if s.shard.Leaf(name) == certificate {
					return "spec.certificateTemplates[" + name + "].spec.issuerRef"
				}
			}
			return "spec.certificateTemplates"
		}})
}

// secrets creates the Secrets that are built from others: CA bundles, keys and kubeconfigs.
func (s *scope) secrets(ctx context.Context) error {
	bundles, err := installation.Bundles(ctx, s.Client, s.root, s.root.ServerBundle(), s.root.ClientBundle(), s.root.PeerBundle(),
		s.root.ProxyBundle())
	if err != nil {
		return err
	}
	return cmp.Or(s.serverTrust(ctx, bundles), s.clientTrust(ctx, bundles),
		s.ServiceAccountKeys(ctx, s.shard.Leaf(shard.ServiceAccount), s.shard.ServiceAccountKeys(), shard.ServiceAccountInput),
		s.kubeconfigs(ctx))
}

// serverTrust creates the bundle of CAs for server certificates: those of the installation, and those that the spec names.
func (s *scope) serverTrust(ctx context.Context, bundles map[string][]byte) error {
	named, err := s.Named(ctx, "caBundleSecretRef", s.object.Spec.CABundleSecretRef)
	if err != nil {
		return err
	}
	all := kcpaccess.Bundle(s.object.Namespace, s.shard.ServerBundle(), s.Labels, bundles[s.root.ServerBundle()], named)
	if err := apply.All(ctx, s.Client, s.object, all); err != nil {
		return err
	}
	server, err := s.Issued(ctx, s.shard.Leaf(shard.Server))
	if err != nil {
		return err
	}
	if template := s.object.Spec.CertificateTemplates[shard.Server]; pki.IssuerOf(&template) != nil {
		distrusted := installation.Trusted(s.shard.Leaf(shard.Server), server[corev1.TLSCertKey], bundles[s.root.ServerBundle()], s.rs.Name)
		s.Report.Set(v1alpha1.ConditionCertificatesReady, distrusted)
	} else {
		s.Report.Set(v1alpha1.ConditionCertificatesReady,
			s.Compare(ctx, s.root.ServerCA(), bundles[s.root.ServerBundle()], "", s.shard.Leaf(shard.Server)))
	}
	return s.AuthoritiesInput(ctx, shard.ServerTrustInput, map[string][]byte{"servers": all.Data[corev1.TLSCertKey]})
}

// clientTrust creates the bundle of CAs for client certificates of users, and sets the hash of all CAs of clients.
func (s *scope) clientTrust(ctx context.Context, bundles map[string][]byte) error {
	named, err := s.Named(ctx, "clientCABundleRef", s.object.Spec.ClientCABundleRef)
	if err != nil {
		return err
	}
	clients := kcpaccess.Bundle(s.object.Namespace, s.shard.ClientBundle(), s.Labels, bundles[s.root.ClientBundle()], named)
	if err := apply.All(ctx, s.Client, s.object, clients); err != nil {
		return err
	}
	s.Report.Set(v1alpha1.ConditionCertificatesReady,
		s.Compare(ctx, s.root.PeerCA(), bundles[s.root.PeerBundle()], "", s.shard.Leaf(shard.Client)))
	var leaves []string
	if s.Etcd.Trust != "" {
		leaves = append(leaves, s.Etcd.Secret)
	}
	return s.AuthoritiesInput(ctx, shard.AuthoritiesInput, map[string][]byte{"clients": clients.Data[corev1.TLSCertKey],
		"peers": bundles[s.root.PeerBundle()], "proxies": bundles[s.root.ProxyBundle()]}, leaves...)
}

// kubeconfigs creates the kubeconfigs with which the shard finds the root shard and the cache server.
func (s *scope) kubeconfigs(ctx context.Context) error {
	root, err := kcpaccess.FilesSecret(s.object.Namespace, s.shard.Kubeconfig(shard.RootShard), s.Labels, shard.RootFiles(s.root.BaseURL()))
	if err != nil {
		return err
	}
	return cmp.Or(apply.All(ctx, s.Client, s.object, root), s.CacheKubeconfig(ctx, s.shard))
}

// withoutEffect returns the fields that are set and have no effect, with the reason.
func withoutEffect(spec *v1alpha1.ShardSpec) []string {
	var fields []string
	add := func(set bool, field string) {
		if set {
			fields = append(fields, field)
		}
	}
	for _, name := range []string{"virtual-workspaces", "mounts-proxy", shard.LogicalClusterAdmin, shard.ExternalAdmin} {
		_, set := spec.CertificateTemplates[name]
		add(set, "spec.certificateTemplates["+name+"]: the shard does not need this certificate")
	}
	add(spec.Cache != nil && spec.Cache.Embedded != nil, "spec.cache.embedded: the root shard contains the cache")
	if auth := spec.Auth; auth != nil {
		add(auth.OIDC != nil && auth.OIDC.ClientSecret != "", "spec.auth.oidc.clientSecret: the server does not need it")
		add(len(auth.DropGroups)+len(auth.PassOnGroups) > 0, "spec.auth.dropGroups and passOnGroups: they apply to front proxies")
	}
	return fields
}
