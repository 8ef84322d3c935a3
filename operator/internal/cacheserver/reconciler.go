// Package cacheserver reconciles CacheServers: it creates certificates, an etcd if the spec requests one, and pods.
package cacheserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=cacheservers,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=cacheservers/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=cacheservers/finalizers,verbs=update

// authoritiesInput is the hash of the CAs of clients and of the certificates in use.
const authoritiesInput = "authorities"

// Reconciler reconciles CacheServers.
type Reconciler struct {
	component.Environment
}

// scope is the state of one reconciliation of a CacheServer.
type scope struct {
	component.Scope
	cache *v1alpha1.CacheServer
}

// Reconcile takes all steps that are possible now, and reports in the status what it waits for.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	c := &v1alpha1.CacheServer{}
	if exists, err := r.Read(ctx, request, c); !exists {
		return ctrl.Result{}, err
	}
	if !c.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the garbage collector deletes its objects
	}
	before := c.DeepCopy()
	rs, err := r.root(ctx, c)
	if err != nil {
		return ctrl.Result{}, err
	}
	s := r.scope(c)
	if rs != nil { // the cache server is upgraded first, to the image that the RootShard waits for
		s.Follows = component.Wanted(rs.Spec.Image, rs.Status.Image, r.DefaultImage)
	}
	s.Turn = func(ctx context.Context, _ string) error {
		return installation.CacheTurn(ctx, r.Client, rs, c.Spec.Image)
	}
	s.reconcile(ctx)
	c.Status.URL = url(c)
	return s.End(ctx, before, before.Status.Conditions)
}

// root returns the RootShard of a cache server, or nil.
func (r *Reconciler) root(ctx context.Context, c *v1alpha1.CacheServer) (*v1alpha1.RootShard, error) {
	user, err := installation.CacheUser(ctx, r.Client, c.Namespace, c.Name)
	if err != nil || user == "" {
		return nil, err
	}
	rs := &v1alpha1.RootShard{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: user}, rs); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return rs, nil
}

func (r *Reconciler) scope(c *v1alpha1.CacheServer) *scope {
	s := &scope{cache: c, Scope: component.Scope{
		Environment: &r.Environment, Owner: c, Spec: &c.Spec.ComponentSpec, Status: &c.Status.ComponentStatus,
		Workload: installation.CacheWorkload(c.Name), Container: container, Labels: labels(c), Selector: base(c).Labels(),
		Prerequisites: []string{v1alpha1.ConditionReferenceValid, v1alpha1.ConditionCertificatesReady},
	}}
	if c.Spec.Etcd == nil {
		s.DefaultReplicas = 1
	} else {
		s.Prerequisites = append(s.Prerequisites, v1alpha1.ConditionEtcdReady)
	}
	s.Begin()
	return s
}

// reconcile takes the steps. A step that waits or fails blocks only the steps that need its result.
func (s *scope) reconcile(ctx context.Context) {
	s.Report.Set(v1alpha1.ConditionCertificatesReady, s.certificates(ctx))
	if config := s.cache.Spec.Etcd; config != nil {
		s.Report.Set(v1alpha1.ConditionEtcdReady, s.UseEtcd(ctx, *config, s.cache.Spec.ClusterDomain))
	}
	s.Report.Set(v1alpha1.ConditionReferenceValid, s.references(ctx))
	s.Report.Set(conditions.Rest, s.MaintainPods(ctx))
	unmade := s.trust(ctx)
	s.Report.Set(v1alpha1.ConditionCertificatesReady, unmade)
	s.Run(ctx, unmade == nil, func(image string, replicas *int32) *workload.Component {
		return build(s.cache, s.Etcd, s.Inputs, image, replicas)
	})
	if s.cache.Spec.Etcd != nil {
		s.Report.Set(v1alpha1.ConditionEtcdReady, s.CheckEtcd(ctx))
	}
	if unmade == nil {
		s.ReportRotation()
	}
	s.Available(ctx)
}

// certificates applies the CA and the certificate of the server.
func (s *scope) certificates(ctx context.Context) error {
	issuers, authorities, leaves := certificates(s.cache)
	err := s.Certificates(ctx, component.Certificates{Issuers: issuers, Authorities: authorities, Leaves: leaves, Unwanted: unwanted(s.cache),
		Field: s.issuerField})
	if given := s.Authority(ctx, s.cache.Spec.Certificates); given != nil {
		return given
	}
	return err
}

// issuerField returns the field that names the issuer of a certificate.
func (s *scope) issuerField(certificate string) string {
	for part, template := range map[string]string{"ca": "root-ca", "server": "server"} {
		given, ok := s.cache.Spec.CertificateTemplates[template]
		if ok && name(s.cache, part) == certificate && pki.IssuerOf(&given) != nil {
			return "spec.certificateTemplates[" + template + "].spec.issuerRef"
		}
	}
	return "spec.certificates.issuerRef"
}

// references checks the objects in the spec, and writes to the status whose cache server this is.
func (s *scope) references(ctx context.Context) error {
	user, err := installation.CacheUser(ctx, s.Client, s.cache.Namespace, s.cache.Name)
	if err != nil {
		return err
	}
	s.cache.Status.RootShard = user
	if err := installation.CheckEtcd(ctx, s.Client, s.cache); err != nil {
		return err
	}
	return s.References(ctx, references(s.cache, s.Etcd))
}

// trust creates the bundle of CAs with which the cache server and the shards verify each other.
func (s *scope) trust(ctx context.Context) error {
	ca, server := authority(s.cache), name(s.cache, "server")
	bundle, err := s.Trusted(ctx, ca, name(s.cache, "merged-ca-bundle"), "", nil)
	if err != nil {
		return err
	}
	leaves := []string{server}
	if given := template(s.cache, "server"); pki.IssuerOf(given) != nil {
		leaves = nil // another authority signs it
		own, err := s.Issued(ctx, server)
		if err != nil {
			return err
		}
		if len(own["ca.crt"]) == 0 {
			return conditions.Stall("AuthorityUnknown", "spec.certificateTemplates[server].spec.issuerRef: this issuer does not publish its CA "+
				"certificate: use another issuer")
		}
		all := kcpaccess.Bundle("", "", nil, bundle.Data[corev1.TLSCertKey], own["ca.crt"])
		bundle.Data[corev1.TLSCertKey] = all.Data[corev1.TLSCertKey]
	}
	s.Report.Set(
		v1alpha1.ConditionCertificatesReady,
		s.Compare(ctx, name(s.cache, "ca"), bundle.Data[corev1.TLSCertKey], "certificates", server),
	)
	if err := apply.Keep(ctx, s.Client, s.cache, bundle); err != nil {
		return err
	}
	if s.Etcd.Trust != "" {
		leaves = append(leaves, s.Etcd.Secret)
	}
	return s.AuthoritiesInput(ctx, authoritiesInput, map[string][]byte{"clients": bundle.Data[component.OwnAuthorities]}, leaves...)
}
