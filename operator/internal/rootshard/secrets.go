package rootshard

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// secrets creates the Secrets that are built from others: CA bundles, and kubeconfigs of components. Each is created as soon as its inputs
// exist.
func (s *scope) secrets(ctx context.Context) error {
	s.rotation = rotation{}
	return cmp.Or(s.serverTrust(ctx), s.clientTrust(ctx), s.serviceAccountKeys(ctx))
}

// serverTrust creates the bundle of CAs for server certificates, and the kubeconfigs that contain it.
func (s *scope) serverTrust(ctx context.Context) error {
	trusted, err := s.trusted(ctx, s.shard.ServerCA(), s.shard.ServerBundle(), "caBundleSecretRef", s.rs.Spec.CABundleSecretRef)
	if err != nil {
		return err
	}
	if s.foreignServer() {
		own, err := s.issued(ctx, s.shard.Leaf(shard.Server))
		if err != nil {
			return err
		}
		if len(own["ca.crt"]) == 0 && s.rs.Spec.CABundleSecretRef == nil {
			return conditions.Stall("AuthorityUnknown", "spec.certificateTemplates[server].spec.issuerRef: this issuer does not publish its CA "+
				"certificate: name a Secret with it in spec.caBundleSecretRef")
		}
		all := kcpaccess.Bundle("", "", nil, trusted.Data[corev1.TLSCertKey], own["ca.crt"])
		trusted.Data[corev1.TLSCertKey] = all.Data[corev1.TLSCertKey]
	}
	distrusted := s.compare(ctx, s.shard.ServerCA(), trusted.Data[corev1.TLSCertKey], "caBundleSecretRef", shard.Server)
	s.report.Set(v1alpha1.ConditionCertificatesReady, distrusted)
	s.report.Set(v1alpha1.ConditionAvailable, distrusted) // clients refuse the server
	return cmp.Or(apply.Keep(ctx, s.Client, s.rs, trusted),
		s.kubeconfig(ctx, shard.LogicalClusterAdmin, s.shard.BaseURL(), trusted),
		s.kubeconfig(ctx, shard.ExternalAdmin, s.shard.PrivateURL(), trusted))
}

// kubeconfig creates the Secret with the kubeconfig of a component.
func (s *scope) kubeconfig(ctx context.Context, leaf, url string, trusted *corev1.Secret) error {
	pair, err := s.issued(ctx, s.shard.Leaf(leaf))
	if err != nil {
		return err
	}
	kubeconfig, err := kcpaccess.Secret(s.rs.Namespace, s.shard.Kubeconfig(leaf), s.shard.Labels(), kcpaccess.Kubeconfig{
		User: leaf, Certificate: pair[corev1.TLSCertKey], CertificateKey: pair[corev1.TLSPrivateKeyKey],
		Authorities: trusted.Data[corev1.TLSCertKey], Contexts: map[string]string{"shard-base": url}, Current: "shard-base",
	})
	if err != nil {
		return err
	}
	return apply.All(ctx, s.Client, s.rs, kubeconfig)
}

// clientTrust creates the bundle of CAs for client certificates.
func (s *scope) clientTrust(ctx context.Context) error {
	clients, err := s.trusted(ctx, s.shard.ClientCA(), s.shard.ClientBundle(), "clientCABundleRef", s.rs.Spec.ClientCABundleRef)
	if err != nil {
		return err
	}
	users := []string{shard.LogicalClusterAdmin, shard.ExternalAdmin, shard.Operator}
	s.report.Set(v1alpha1.ConditionCertificatesReady,
		s.compare(ctx, s.shard.ClientCA(), clients.Data[corev1.TLSCertKey], "clientCABundleRef", users...))
	return cmp.Or(apply.Keep(ctx, s.Client, s.rs, clients), s.authoritiesInput(ctx, clients))
}

// foreignServer reports whether another CA than that of the RootShard signs the server's certificate.
func (s *scope) foreignServer() bool {
	template, ok := s.rs.Spec.CertificateTemplates[shard.Server]
	return ok && template.Spec != nil && template.Spec.IssuerRef != nil
}

// named returns the CAs in the Secret that the spec names, or nil if it names none.
func (s *scope) named(ctx context.Context, field string, ref *v1alpha1.LocalReference) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	data, err := s.read(ctx, shard.Reference{Field: field, Secret: ref.Name, Keys: []string{corev1.TLSCertKey}})
	if err != nil {
		return nil, err
	}
	if err := kcpaccess.CheckAuthorities(data[corev1.TLSCertKey]); err != nil {
		return nil, conditions.Stall("NoCertificate", "spec.%s: tls.crt of Secret %s %v", field, ref.Name, err)
	}
	return data[corev1.TLSCertKey], nil
}

// issued returns the Secret of a certificate that is ready.
func (s *scope) issued(ctx context.Context, name string) (map[string][]byte, error) {
	data, err := s.secretData(ctx, name)
	if err == nil && len(data[corev1.TLSCertKey]) == 0 {
		return nil, conditions.Wait("SecretNotReady", "waiting for cert-manager to write Secret %s", name)
	}
	return data, err
}
