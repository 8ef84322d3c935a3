package component

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/settings"
)

// Certificates are those of a component.
type Certificates struct {
	// Issuers sign the component's own certificates.
	Issuers []client.Object
	// Authorities and Leaves are the Certificates.
	Authorities, Leaves []client.Object
	// Unwanted are Issuers and Certificates that the component has with another spec.
	Unwanted []client.Object
	// Others are the names of issuers of other objects of the operator, which need not be checked.
	Others []string
	// Field returns the field of the spec that names the issuer of a certificate.
	Field func(certificate string) string
}

// Certificates applies all Certificates at once. cert-manager issues each as soon as its CA is ready.
func (s *Scope) Certificates(ctx context.Context, c Certificates) error {
	own := map[cmmeta.IssuerReference]bool{}
	for _, issuer := range c.Issuers {
		own[pki.IssuerNamed(issuer.GetName())] = true
	}
	for _, name := range c.Others {
		own[pki.IssuerNamed(name)] = true
	}
	s.leaves = c.Leaves
	wanted := slices.Concat(c.Authorities, c.Leaves)
	failed := cmp.Or(apply.All(ctx, s.Client, s.Owner, slices.Concat(c.Issuers, wanted)...), s.removeUnwanted(ctx, c.Unwanted))
	var unknown, unready error
	var all []*certmanager.Certificate
	for _, object := range wanted {
		live := &certmanager.Certificate{}
		if err := s.Get(ctx, client.ObjectKeyFromObject(object), live); client.IgnoreNotFound(err) != nil {
			return err
		}
		if certificate := object.(*certmanager.Certificate); !own[certificate.Spec.IssuerRef] {
			unknown = cmp.Or(unknown, pki.CheckIssuer(ctx, s.Client, c.Field(object.GetName()), certificate))
		}
		unready = cmp.Or(unready, pki.Issued(object.GetName(), live))
		all = append(all, live)
	}
	status, err := s.Status, error(nil)
	status.Certificates = pki.Statuses(all)
	s.After = conditions.Expiring(&status.Conditions, s.Owner.GetGeneration(), all)
	status.Renewed, err = pki.Renew(ctx, s.Client, s.Owner, status.ObservedGeneration, status.Renewed, all)
	return cmp.Or(failed, unknown, err, unready)
}

// removeUnwanted removes Issuers and Certificates that the spec no longer requires; for leaf certificates, also the key.
func (s *Scope) removeUnwanted(ctx context.Context, objects []client.Object) error {
	for _, object := range objects {
		if err := apply.Remove(ctx, s.Client, s.Owner, object); err != nil {
			return err
		}
		if _, leaf := object.(*certmanager.Certificate); !leaf {
			continue
		}
		if err := apply.RemoveKey(ctx, s.Client, client.ObjectKeyFromObject(object), s.Labels); err != nil {
			return err
		}
	}
	return nil
}

// Authority checks the Secret of an existing CA.
func (s *Scope) Authority(ctx context.Context, c *v1alpha1.Certificates) error {
	if c == nil || c.CASecretRef == nil {
		return nil
	}
	const field = "certificates.caSecretRef"
	pair, err := s.Read(ctx, settings.Reference{Field: field, Secret: c.CASecretRef.Name, Keys: []string{"tls.crt", "tls.key"}})
	if err == nil && !pki.IsAuthority(pair[corev1.TLSCertKey]) {
		return conditions.Stall("NotAnAuthority", "spec.%s: the certificate in Secret %s is not one of a CA: name a Secret with a CA", field,
			c.CASecretRef.Name)
	}
	return err
}

// Read returns the content of a Secret or ConfigMap that the spec names.
func (s *Scope) Read(ctx context.Context, ref settings.Reference) (map[string][]byte, error) {
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
