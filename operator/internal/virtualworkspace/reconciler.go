// Package virtualworkspace reconciles VirtualWorkspaces: it creates a certificate, and pods that serve the virtual workspaces of a shard
// with its etcd, or that run another program.
package virtualworkspace

import (
	"cmp"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=virtualworkspaces/finalizers,verbs=update

var prerequisites = []string{v1alpha1.ConditionReferenceValid, v1alpha1.ConditionCertificatesReady}

// Reconciler reconciles VirtualWorkspaces.
type Reconciler struct {
	component.Environment
}

// scope is the state of one reconciliation of a VirtualWorkspace.
type scope struct {
	component.Scope
	views
}

// Reconcile takes all steps that are possible now, and reports in the status what it waits for.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	v := &v1alpha1.VirtualWorkspace{}
	if exists, err := r.Read(ctx, request, v); !exists {
		return ctrl.Result{}, err
	}
	if !v.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the garbage collector deletes its objects
	}
	before := v.DeepCopy()
	target, root, image, missing := installation.Target(ctx, r.Client, v)
	s := r.scope(v, target, root, image)
	if missing != nil {
		s.Report.Set(v1alpha1.ConditionReferenceValid, missing)
		s.Available(ctx)
	} else {
		s.reconcile(ctx)
	}
	s.Ignored(withoutEffect(&v.Spec))
	v.Status.URL = shard.Address(v.Spec.External.Hostname, v.Spec.External.Port)
	return s.End(ctx, before, before.Status.Conditions)
}

// scope returns the scope of a VirtualWorkspace. Its target may be nil.
func (r *Reconciler) scope(v *v1alpha1.VirtualWorkspace, target, root *shard.Shard, image string) *scope {
	none := shard.Root(&v1alpha1.RootShard{})
	own := views{VirtualWorkspace: v, target: cmp.Or(target, none), root: cmp.Or(root, none)}
	s := &scope{views: own, Scope: component.Scope{
		Environment: &r.Environment, Owner: v, Spec: &v.Spec.ComponentSpec, Status: &v.Status,
		Workload: own.workload(), Container: shard.Container, Labels: own.labels(), Selector: own.base().Labels(),
		Follows: image, Prerequisites: prerequisites,
	}}
	s.Begin()
	return s
}

// reconcile takes the steps. A step that waits or fails blocks only the steps that need its result.
func (s *scope) reconcile(ctx context.Context) {
	s.Report.Set(v1alpha1.ConditionReferenceValid, s.check(ctx))
	s.Report.Set(v1alpha1.ConditionCertificatesReady, s.Certificates(ctx, component.Certificates{Leaves: []client.Object{s.leaf()},
		Others: []string{s.root.ServerCA()}, Field: func(string) string { return "spec.certificateTemplates[server].spec.issuerRef" }}))
	s.Report.Set(v1alpha1.ConditionReferenceValid, s.References(ctx, references(s.VirtualWorkspace)))
	s.Report.Set(conditions.Rest, s.MaintainPods(ctx))
	unmade := s.secrets(ctx)
	s.Report.Set(v1alpha1.ConditionCertificatesReady, unmade)
	s.Run(ctx, unmade == nil, func(image string, replicas *int32) *workload.Component { return s.build(s.Inputs, image, replicas) })
	s.Available(ctx)
}

// check returns an error for a spec that is valid only in itself, and until the shard runs.
func (s *scope) check(ctx context.Context) error {
	spec := &s.VirtualWorkspace.Spec
	switch {
	case s.other() && spec.KubeconfigSecretRef == nil:
		return conditions.Stall("KubeconfigMissing", "spec.kubeconfigSecretRef: another program than kcp calls kcp with rights of its own: "+
			"name the Secret of a Kubeconfig")
	case !s.other() && spec.KubeconfigSecretRef != nil:
		return conditions.Stall("NotSupported", "spec.kubeconfigSecretRef: kcp virtual-workspaces reads the etcd of the shard: remove the "+
			"field, or set spec.command")
	case workload.Scraped(spec.Monitoring) && !s.target.Scraped():
		return conditions.Stall("NotSupported", "spec.monitoring.serviceMonitor: requires spec.monitoring.serviceMonitor of the shard in "+
			"spec.target, which creates the user that may read metrics")
	case s.other():
		proxies, err := installation.ProxyAuthorities(ctx, s.Client, s.root)
		s.proxies, s.Follows = proxies, ""
		return err
	}
	return s.followShard(ctx)
}

// followShard reads the pods of the shard, and waits while they are replaced by those of another version.
func (s *scope) followShard(ctx context.Context) error {
	set := &appsv1.StatefulSet{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.target.Namespace, Name: s.target.WorkloadName()}, set)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	image := component.ImageOf(set.Spec.Template.Spec, shard.Container)
	replaced := set.Status.ReadyReplicas > 0 && workload.RolledOut(set)
	if err != nil || image != s.Follows && (s.Follows != "" || !replaced) {
		return conditions.Wait("ShardNotReady", "waiting for a pod of StatefulSet %s to be ready with the image of its spec",
			s.target.WorkloadName())
	}
	s.Follows, s.set, s.Related = image, set, []any{workload.Template(set)}
	return nil
}

// secrets creates the bundle of CAs for client certificates, and checks the one of the certificate of the server.
func (s *scope) secrets(ctx context.Context) error {
	v := s.VirtualWorkspace
	bundles, err := installation.Bundles(ctx, s.Client, s.root, s.root.ServerBundle())
	if err != nil {
		return err
	}
	clients, err := installation.Bundles(ctx, s.Client, s.target, s.target.ClientBundle())
	if err != nil {
		return err
	}
	named, err := s.Named(ctx, "clientCABundleRef", v.Spec.ClientCABundleRef)
	if err != nil {
		return err
	}
	users := kcpaccess.Bundle(v.Namespace, s.name("merged-client-ca"), s.Labels, clients[s.target.ClientBundle()], named)
	if err := apply.All(ctx, s.Client, v, users); err != nil {
		return err
	}
	if _, err := s.Issued(ctx, s.name(server)); err != nil {
		return err
	}
	if pki.IssuerOf(s.template()) != nil {
		return nil // its clients trust this authority
	}
	s.Report.Set(v1alpha1.ConditionCertificatesReady,
		s.Compare(ctx, s.root.ServerCA(), bundles[s.root.ServerBundle()], "", s.name(server)))
	return nil
}

// withoutEffect returns the fields that are set and have no effect, with the reason.
func withoutEffect(spec *v1alpha1.VirtualWorkspaceSpec) []string {
	var fields []string
	add := func(set bool, field string) {
		if set {
			fields = append(fields, field)
		}
	}
	_, client := spec.CertificateTemplates["client"]
	add(client, "spec.certificateTemplates[client]: the server calls other processes with the certificate of the shard")
	add(spec.CABundleSecretRef != nil, "spec.caBundleSecretRef: the server trusts the authorities in spec.caBundleSecretRef of the shard")
	add(spec.External.PrivatePort != 0, "spec.external.privatePort: the Service has one port")
	return fields
}
