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
	servers, err := s.authorities(ctx, s.shard.ServerCA(), "caBundleSecretRef", s.rs.Spec.CABundleSecretRef)
	if err != nil {
		return err
	}
	if template, ok := s.rs.Spec.CertificateTemplates["server"]; ok && template.Spec != nil && template.Spec.IssuerRef != nil {
		own, err := s.issued(ctx, s.shard.Leaf("server"))
		if err != nil {
			return err
		}
		if len(own["ca.crt"]) == 0 && s.rs.Spec.CABundleSecretRef == nil {
			return conditions.Stall("AuthorityUnknown", "spec.certificateTemplates[server].spec.issuerRef: this issuer does not tell who vouches "+
				"for its certificates: name a Secret with that authority in spec.caBundleSecretRef")
		}
		servers = append(servers, own["ca.crt"])
	}
	clients, err := s.authorities(ctx, s.shard.ClientCA(), "clientCABundleRef", s.rs.Spec.ClientCABundleRef)
	if err != nil {
		return err
	}
	trusted := access.Bundle(s.rs.Namespace, s.shard.ServerBundle(), s.shard.Labels(), servers...)
	objects := []client.Object{trusted, access.Bundle(s.rs.Namespace, s.shard.ClientBundle(), s.shard.Labels(), clients...)}
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
	keys, err := s.issued(ctx, s.shard.Leaf(shard.ServiceAccount))
	if err != nil {
		return err
	}
	s.shard.Inputs[shard.ServiceAccountInput] = hash(keys, []string{corev1.TLSPrivateKeyKey})
	return nil
}

// authorities are the operator's own one, and those of a Secret that the spec may name.
func (s *scope) authorities(ctx context.Context, own, field string, further *v1alpha1.LocalReference) ([][]byte, error) {
	authority, err := s.issued(ctx, own)
	if err != nil {
		return nil, err
	}
	all := [][]byte{authority[corev1.TLSCertKey]}
	if further != nil {
		data, err := s.read(ctx, shard.Reference{Field: field, Secret: further.Name, Keys: []string{corev1.TLSCertKey}})
		if err != nil {
			return nil, err
		}
		if err := access.CheckAuthorities(data[corev1.TLSCertKey]); err != nil {
			return nil, conditions.Stall("NoCertificate", "spec.%s: tls.crt of Secret %s %v", field, further.Name, err)
		}
		all = append(all, data[corev1.TLSCertKey])
	}
	return all, nil
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
