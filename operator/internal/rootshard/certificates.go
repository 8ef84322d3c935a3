package rootshard

import (
	"cmp"
	"context"
	"fmt"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// certificates applies all Certificates at once. cert-manager issues each as soon as its CA is ready.
func (s *scope) certificates(ctx context.Context) error {
	issuers, wanted := shard.Authorities(s.shard, s.rs.Spec.Certificates)
	own := map[cmmeta.IssuerReference]bool{}
	for _, issuer := range issuers {
		own[pki.IssuerNamed(issuer.GetName())] = true
	}
	wanted = append(wanted, shard.Leaves(s.shard)...)
	failed := cmp.Or(apply.All(ctx, s.Client, s.rs, append(issuers, wanted...)...), s.removeUnwanted(ctx), s.authority(ctx))
	var unknown, unready error
	var all []*certmanager.Certificate
	for _, object := range wanted {
		live := &certmanager.Certificate{}
		if err := s.Get(ctx, client.ObjectKeyFromObject(object), live); client.IgnoreNotFound(err) != nil {
			return err
		}
		if ref := object.(*certmanager.Certificate).Spec.IssuerRef; !own[ref] {
			unknown = cmp.Or(unknown, pki.CheckIssuer(ctx, s.Client, s.rs.Namespace, s.issuerField(object.GetName()), ref))
		}
		unready = cmp.Or(unready, pki.Issued(object.GetName(), live))
		all = append(all, live)
	}
	status, err := &s.rs.Status, error(nil)
	status.Certificates = pki.Statuses(all)
	s.after = conditions.Expiring(&status.Conditions, s.rs.Generation, all)
	status.Renewed, err = pki.Renew(ctx, s.Client, s.rs, status.ObservedGeneration, status.Renewed, all)
	return cmp.Or(failed, unknown, err, unready)
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

// removeUnwanted removes Issuers and Certificates that the spec no longer requires; for leaf certificates, also the key.
func (s *scope) removeUnwanted(ctx context.Context) error {
	for _, object := range shard.Unwanted(s.shard, s.rs.Spec.Certificates) {
		if err := apply.Remove(ctx, s.Client, s.rs, object); err != nil {
			return err
		}
		if _, leaf := object.(*certmanager.Certificate); !leaf {
			continue
		}
		if err := apply.RemoveKey(ctx, s.Client, client.ObjectKeyFromObject(object), s.shard.Labels()); err != nil {
			return err
		}
	}
	return nil
}

// authority checks the Secret of an existing CA.
func (s *scope) authority(ctx context.Context) error {
	c := s.rs.Spec.Certificates
	if c == nil || c.CASecretRef == nil {
		return nil
	}
	_, err := s.read(ctx, shard.Reference{Field: "certificates.caSecretRef", Secret: c.CASecretRef.Name, Keys: []string{"tls.crt", "tls.key"}})
	return err
}

// read returns the content of a Secret or ConfigMap that the spec names.
func (s *scope) read(ctx context.Context, ref shard.Reference) (map[string][]byte, error) {
	kind, name, data, err := s.content(ctx, ref)
	if apierrors.IsNotFound(err) {
		return nil, conditions.Stall("ReferenceNotFound", "spec.%s: there is no %s %s: create it", ref.Field, kind, name)
	}
	if err != nil {
		return nil, fmt.Errorf("spec.%s: %w", ref.Field, err)
	}
	for _, key := range ref.Keys {
		if len(data[key]) == 0 {
			return nil, conditions.Stall("KeyMissing", "spec.%s: %s %s has no key %s: add it", ref.Field, kind, name, key)
		}
	}
	return data, nil
}
