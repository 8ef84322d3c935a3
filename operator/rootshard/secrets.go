package rootshard

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/access"
	"github.com/kcplane/kcp/operator/apply"
	"github.com/kcplane/kcp/operator/conditions"
	"github.com/kcplane/kcp/operator/shard"
)

// secrets makes the Secrets that are put together from others: bundles of authorities, and kubeconfigs of components.
func (s *scope) secrets(ctx context.Context) error {
	s.rotation = rotation{}
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
			return conditions.Stall("AuthorityUnknown", "spec.certificateTemplates[server].spec.issuerRef: this issuer does not tell who vouches "+
				"for its certificates: name a Secret with that authority in spec.caBundleSecretRef")
		}
		all := access.Bundle("", "", nil, trusted.Data[corev1.TLSCertKey], own["ca.crt"])
		trusted.Data[corev1.TLSCertKey] = all.Data[corev1.TLSCertKey]
	}
	clients, err := s.trusted(ctx, s.shard.ClientCA(), s.shard.ClientBundle(), "clientCABundleRef", s.rs.Spec.ClientCABundleRef)
	if err != nil {
		return err
	}
	objects := []client.Object{trusted, clients}
	for leaf, url := range map[string]string{shard.LogicalClusterAdmin: s.shard.BaseURL(), shard.ExternalAdmin: s.shard.PrivateURL()} {
		pair, err := s.issued(ctx, s.shard.Leaf(leaf))
		if err != nil {
			return err
		}
		kubeconfig, err := access.Secret(s.rs.Namespace, s.shard.Kubeconfig(leaf), s.shard.Labels(), access.Kubeconfig{
			User: leaf, Certificate: pair[corev1.TLSCertKey], CertificateKey: pair[corev1.TLSPrivateKeyKey],
			Authorities: trusted.Data[corev1.TLSCertKey], Contexts: map[string]string{"shard-base": url}, Current: "shard-base",
		})
		if err != nil {
			return err
		}
		objects = append(objects, kubeconfig)
	}
	if err := apply.All(ctx, s.Client, s.rs, objects...); err != nil {
		return err
	}
	if err := s.serviceAccountKeys(ctx); err != nil {
		return err
	}
	return s.authoritiesInput(ctx, clients)
}

// foreignServer tells whether the certificate of the server is not of the RootShard's own authority.
func (s *scope) foreignServer() bool {
	template, ok := s.rs.Spec.CertificateTemplates[shard.Server]
	return ok && template.Spec != nil && template.Spec.IssuerRef != nil
}

// named are the authorities in the Secret that the spec names, if it names one.
func (s *scope) named(ctx context.Context, field string, ref *v1alpha1.LocalReference) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	data, err := s.read(ctx, shard.Reference{Field: field, Secret: ref.Name, Keys: []string{corev1.TLSCertKey}})
	if err != nil {
		return nil, err
	}
	if err := access.CheckAuthorities(data[corev1.TLSCertKey]); err != nil {
		return nil, conditions.Stall("NoCertificate", "spec.%s: tls.crt of Secret %s %v", field, ref.Name, err)
	}
	return data[corev1.TLSCertKey], nil
}

// issued returns the Secret of a certificate that is ready.
func (s *scope) issued(ctx context.Context, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, conditions.Wait("SecretNotReady", "waiting for cert-manager to write Secret %s", name)
	}
	return secret.Data, err
}
