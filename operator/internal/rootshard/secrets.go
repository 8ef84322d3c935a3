package rootshard

import (
	"cmp"
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// secrets creates the Secrets that are built from others: CA bundles, and kubeconfigs of components. Each is created as soon as its inputs
// exist.
func (s *scope) secrets(ctx context.Context) error {
	return cmp.Or(s.serverTrust(ctx), s.peerTrust(ctx), s.clientTrust(ctx),
		s.ServiceAccountKeys(ctx, s.shard.Leaf(shard.ServiceAccount), s.shard.ServiceAccountKeys(), shard.ServiceAccountInput))
}

// serverTrust creates the bundle of CAs for server certificates, and the kubeconfigs that contain it.
func (s *scope) serverTrust(ctx context.Context) error {
	trusted, err := s.Trusted(ctx, s.shard.ServerCA(), s.shard.ServerBundle(), "caBundleSecretRef", s.rs.Spec.CABundleSecretRef)
	if err != nil {
		return err
	}
	if s.foreignServer() {
		own, err := s.Issued(ctx, s.shard.Leaf(shard.Server))
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
	distrusted := s.Compare(ctx, s.shard.ServerCA(), trusted.Data[corev1.TLSCertKey], "caBundleSecretRef", s.shard.Leaf(shard.Server))
	s.Report.Set(v1alpha1.ConditionCertificatesReady, distrusted)
	s.Report.Set(v1alpha1.ConditionAvailable, distrusted) // clients refuse the server
	if s.shard.Sharded {                                  // read when the shard starts
		servers := map[string][]byte{"servers": trusted.Data[corev1.TLSCertKey]}
		if err := s.AuthoritiesInput(ctx, shard.ServerTrustInput, servers); err != nil {
			return err
		}
	}
	return cmp.Or(apply.Keep(ctx, s.Client, s.rs, trusted),
		s.kubeconfig(ctx, shard.LogicalClusterAdmin, s.shard.BaseURL(), trusted),
		s.kubeconfig(ctx, shard.ExternalAdmin, s.shard.PrivateURL(), trusted))
}

// kubeconfig creates the Secret with the kubeconfig of a component.
func (s *scope) kubeconfig(ctx context.Context, leaf, url string, trusted *corev1.Secret) error {
	pair, err := s.Issued(ctx, s.shard.Leaf(leaf))
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
	clients, err := s.Trusted(ctx, s.shard.ClientCA(), s.shard.ClientBundle(), "clientCABundleRef", s.rs.Spec.ClientCABundleRef)
	if err != nil {
		return err
	}
	users := []string{s.shard.Leaf(shard.LogicalClusterAdmin), s.shard.Leaf(shard.ExternalAdmin), s.shard.Leaf(shard.Operator)}
	s.Report.Set(v1alpha1.ConditionCertificatesReady,
		s.Compare(ctx, s.shard.ClientCA(), clients.Data[corev1.TLSCertKey], "clientCABundleRef", users...))
	return cmp.Or(apply.Keep(ctx, s.Client, s.rs, clients), s.authoritiesInput(ctx, clients))
}

// authoritiesInput sets the hash of the CAs of clients, and of the CAs that signed the certificates of the server.
func (s *scope) authoritiesInput(ctx context.Context, clients *corev1.Secret) error {
	var leaves []string
	if !s.foreignServer() {
		leaves = append(leaves, s.shard.Leaf(shard.Server))
	}
	if s.Etcd.Trust != "" {
		leaves = append(leaves, s.Etcd.Secret)
	}
	bundles := map[string][]byte{"clients": clients.Data[component.OwnAuthorities]}
	maps.Copy(bundles, s.peers)
	return s.AuthoritiesInput(ctx, shard.AuthoritiesInput, bundles, leaves...)
}

// foreignServer reports whether another CA than that of the RootShard signs the server's certificate.
func (s *scope) foreignServer() bool {
	template, ok := s.rs.Spec.CertificateTemplates[shard.Server]
	return ok && template.Spec != nil && template.Spec.IssuerRef != nil
}
