// Package frontproxy reconciles FrontProxies: it creates certificates, the files with which front proxies find shards, and pods.
package frontproxy

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// +kubebuilder:rbac:groups=operator.kcp.io,resources=frontproxies,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=frontproxies/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=frontproxies/finalizers,verbs=update

var prerequisites = []string{v1alpha1.ConditionReferenceValid, v1alpha1.ConditionCertificatesReady}

// Names of hashes of what a front proxy reads only when it starts, and of the CAs of the certificates in use.
const (
	serversInput     = "server-trust"
	authoritiesInput = "authorities"
)

// Reconciler reconciles FrontProxies.
type Reconciler struct {
	component.Environment
}

// scope is the state of one reconciliation of a FrontProxy.
type scope struct {
	component.Scope
	proxy
	rs *v1alpha1.RootShard
	// externalHost and externalPort are the address for clients.
	externalHost string
	externalPort uint32
}

// Reconcile takes all steps that are possible now, and reports in the status what it waits for.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	f := &v1alpha1.FrontProxy{}
	if exists, err := r.Read(ctx, request, f); !exists {
		return ctrl.Result{}, err
	}
	if !f.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the garbage collector deletes its objects
	}
	before := f.DeepCopy()
	rs, missing := installation.Root(ctx, r.Client, f.Namespace, "rootShard.ref", f.Spec.RootShard.Reference)
	s := r.scope(f, rs)
	if missing != nil {
		s.Report.Set(v1alpha1.ConditionReferenceValid, missing)
		s.Available(ctx)
	} else {
		s.reconcile(ctx)
		f.Status.URL = shard.Address(s.externalHost, s.externalPort)
	}
	s.Ignored(withoutEffect(&f.Spec))
	return s.End(ctx, before, before.Status.Conditions)
}

// scope returns the scope of a FrontProxy. Its RootShard may be nil.
func (r *Reconciler) scope(f *v1alpha1.FrontProxy, rs *v1alpha1.RootShard) *scope {
	known := cmp.Or(rs, &v1alpha1.RootShard{})
	p := proxy{FrontProxy: f, root: shard.Root(known)}
	p.root.Sharded = true
	host, port := installation.ProxyAddress(f, known)
	s := &scope{proxy: p, rs: rs, externalHost: host, externalPort: port, Scope: component.Scope{
		Environment: &r.Environment, Owner: f, Spec: &f.Spec.ComponentSpec, Status: &f.Status,
		Workload: p.workload(), Container: container, Labels: p.labels(), Selector: p.base().Labels(),
		Follows: known.Status.Image, Prerequisites: prerequisites, Related: []any{p.root.BaseURL(), port},
	}}
	s.Turn = func(ctx context.Context, image string) error {
		return installation.PartTurn(ctx, r.Client, known, f, f.Spec.Image, image)
	}
	if exposed(&f.Spec) {
		s.Later = []string{v1alpha1.ConditionExposed}
	} else {
		meta.RemoveStatusCondition(&f.Status.Conditions, v1alpha1.ConditionExposed)
	}
	s.Begin()
	return s
}

// reconcile takes the steps. A step that waits or fails blocks only the steps that need its result.
func (s *scope) reconcile(ctx context.Context) {
	s.Report.Set(v1alpha1.ConditionReferenceValid, s.check(ctx))
	s.Report.Set(v1alpha1.ConditionCertificatesReady, s.Certificates(ctx, component.Certificates{Leaves: s.leaves(s.externalHost),
		Others: []string{s.root.ServerCA(), s.root.ProxyCA()}, Field: s.issuerField}))
	s.Report.Set(v1alpha1.ConditionReferenceValid, s.References(ctx, references(s.FrontProxy)))
	s.Report.Set(conditions.Rest, s.MaintainPods(ctx))
	unmade := s.secrets(ctx)
	s.Report.Set(v1alpha1.ConditionCertificatesReady, unmade)
	s.Run(ctx, unmade == nil, func(image string, replicas *int32) *workload.Component {
		return s.build(s.externalPort, s.Inputs, image, replicas)
	})
	s.Available(ctx)
	if s.Report.Met(v1alpha1.ConditionReferenceValid) { // otherwise, another front proxy may have the hostname
		s.Report.Set(exposure(&s.FrontProxy.Spec), s.expose(ctx))
	}
}

// check returns an error for a spec that is valid only in itself.
func (s *scope) check(ctx context.Context) error {
	if err := installation.CheckAddress(ctx, s, s.FrontProxy, s.rs); err != nil {
		return err
	}
	if workload.Scraped(s.FrontProxy.Spec.Monitoring) && !workload.Scraped(s.rs.Spec.Monitoring) {
		return conditions.Stall("NotSupported", "spec.monitoring.serviceMonitor: requires spec.monitoring.serviceMonitor of RootShard %s, "+
			"which creates the user that may read metrics", s.rs.Name)
	}
	return s.checkMappings()
}

// checkMappings returns an error for a file of a path mapping that no volume has.
func (s *scope) checkMappings() error {
	own := []string{directory + "tls", directory + "requestheader-client", directory + "client-ca", tls + "ca"}
	var mounted []string
	for _, m := range s.FrontProxy.Spec.ExtraVolumeMounts {
		mounted = append(mounted, path.Clean(m.MountPath))
	}
	for i, entry := range s.FrontProxy.Spec.AdditionalPathMappings {
		for field, file := range map[string]string{"backend_server_ca": entry.BackendServerCA, "proxy_client_cert": entry.ProxyClientCert,
			"proxy_client_key": entry.ProxyClientKey} {
			inside := func(directory string) bool { return strings.HasPrefix(path.Clean(file), directory+"/") }
			if file != "" && !slices.Contains(own, path.Dir(path.Clean(file))) && !slices.ContainsFunc(mounted, inside) {
				return conditions.Stall("FileMissing", "spec.additionalPathMappings[%d].%s: the pods have no file %s: mount it with "+
					"spec.extraVolumes and extraVolumeMounts, or use /etc/kcp/tls/ca/tls.crt, which has the authorities of the installation", i,
					field, file)
			}
		}
	}
	return nil
}

// issuerField returns the field that names the issuer of a certificate.
func (s *scope) issuerField(certificate string) string {
	part := strings.TrimPrefix(certificate, s.name(""))
	return "spec.certificateTemplates[" + part + "].spec.issuerRef"
}

// secrets creates the Secrets that are built from others: CA bundles, the kubeconfig and the mapping file.
func (s *scope) secrets(ctx context.Context) error {
	f := s.FrontProxy
	bundles, err := installation.Bundles(ctx, s.Client, s.root, s.root.ServerBundle(), s.root.ClientBundle(), s.root.ProxyBundle())
	if err != nil {
		return err
	}
	servers, err := s.Named(ctx, "caBundleSecretRef", f.Spec.CABundleSecretRef)
	if err != nil {
		return err
	}
	clients, err := s.Named(ctx, "clientCABundleRef", f.Spec.ClientCABundleRef)
	if err != nil {
		return err
	}
	own, err := s.ownAuthority(ctx)
	if err != nil {
		return err
	}
	trusted := kcpaccess.Bundle(f.Namespace, installation.ProxyBundle(f.Name), s.Labels, bundles[s.root.ServerBundle()], servers, own)
	users := kcpaccess.Bundle(f.Namespace, s.name("merged-client-ca"), s.Labels, bundles[s.root.ClientBundle()], clients)
	kubeconfig, err := kcpaccess.FilesSecret(f.Namespace, s.name("kubeconfig"), s.Labels, s.kubeconfig())
	if err != nil {
		return err
	}
	if err := cmp.Or(apply.All(ctx, s.Client, f, trusted, users, kubeconfig), s.mappingFile(ctx)); err != nil {
		return err
	}
	s.Report.Set(v1alpha1.ConditionCertificatesReady, s.Compare(ctx, s.root.ServerCA(), trusted.Data[corev1.TLSCertKey], "", s.name(server)))
	s.Report.Set(v1alpha1.ConditionCertificatesReady, s.Compare(ctx, s.root.ProxyCA(), bundles[s.root.ProxyBundle()], "", s.name(peer)))
	err = s.AuthoritiesInput(ctx, serversInput, map[string][]byte{"servers": trusted.Data[corev1.TLSCertKey]})
	return cmp.Or(err, s.AuthoritiesInput(ctx, authoritiesInput, map[string][]byte{"clients": users.Data[corev1.TLSCertKey]}, s.name(peer)))
}

// ownAuthority returns the CA of the certificate of the server if another issuer than the RootShard signs it, for clients.
func (s *scope) ownAuthority(ctx context.Context) ([]byte, error) {
	pair, err := s.Issued(ctx, s.name(server))
	if err != nil || pki.IssuerOf(s.template(server)) == nil {
		return nil, err
	}
	return pair["ca.crt"], nil
}

// mappingFile creates the Secret with the mapping file if there are additional mappings.
func (s *scope) mappingFile(ctx context.Context) error {
	content, err := s.mapping()
	if err != nil {
		return err
	}
	return apply.Optional(ctx, s.Client, s.FrontProxy, len(s.FrontProxy.Spec.AdditionalPathMappings) > 0, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.FrontProxy.Namespace, Name: s.name("config"), Labels: s.Labels},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{mappingKey: content},
	})
}

// withoutEffect returns the fields that are set and have no effect, with the reason.
func withoutEffect(spec *v1alpha1.FrontProxySpec) []string {
	var fields []string
	if _, set := spec.CertificateTemplates["kubeconfig"]; set {
		fields = append(fields, "spec.certificateTemplates[kubeconfig]: the front proxy calls shards with the certificate requestheader")
	}
	if e := spec.External; e != nil && e.PrivatePort != 0 {
		fields = append(fields, "spec.external.privatePort: the Service has one port")
	}
	if auth := spec.Auth; auth != nil {
		if auth.OIDC != nil && auth.OIDC.ClientSecret != "" {
			fields = append(fields, "spec.auth.oidc.clientSecret: the server does not need it")
		}
		if auth.ServiceAccount != nil {
			fields = append(fields, "spec.auth.serviceAccount: shards always authenticate service accounts")
		}
	}
	return fields
}
