package pki

import (
	"cmp"
	"context"
	"slices"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates/status,verbs=patch

// Statuses returns the status entries of issued certificates.
func Statuses(certificates []*certmanager.Certificate) []v1alpha1.CertificateStatus {
	var all []v1alpha1.CertificateStatus
	for _, c := range certificates {
		if c.Status.NotAfter == nil {
			continue
		}
		status := v1alpha1.CertificateStatus{Name: c.Name, NotAfter: c.Status.NotAfter}
		if c.Status.Revision != nil {
			status.Revision = *c.Status.Revision
		}
		all = append(all, status)
	}
	slices.SortFunc(all, func(a, b v1alpha1.CertificateStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Renew requests the renewal of leaf certificates if the renewal annotation of their owner has a new value. It returns the value that it
// processed. A new owner that was never reconciled needs no renewal.
func Renew(ctx context.Context, c client.Client, owner client.Object, seen int64, last string,
	certificates []*certmanager.Certificate) (string, error) {
	asked := owner.GetAnnotations()[v1alpha1.RenewAnnotation]
	if asked == "" || asked == last || seen == 0 {
		return asked, nil
	}
	for _, certificate := range certificates {
		if certificate.Spec.IsCA || certificate.Name == "" { // it did not exist when it was read, and is issued anyway
			continue
		}
		if err := Reissue(ctx, c, certificate, "requested by the annotation "+v1alpha1.RenewAnnotation); err != nil {
			return last, err
		}
	}
	return asked, nil
}

// Distrusted requests a new certificate for one that its peers do not trust, and returns an error to wait for it. For a certificate of
// another issuer than own, this would not help: then the error has the hint what to change.
func Distrusted(ctx context.Context, c client.Client, certificate *certmanager.Certificate, own, hint string) error {
	if certificate.Spec.IssuerRef != IssuerNamed(own) {
		return conditions.Stall("CertificateNotTrusted", "Certificate %s: its issuer %s is not trusted: %s", certificate.Name,
			certificate.Spec.IssuerRef.Name, hint)
	}
	signed, err := hasSigned(ctx, c, certificate, own)
	if err != nil {
		return err
	}
	if signed { // a new certificate would not help until the bundle is updated
		return conditions.Wait("CertificateNotTrusted",
			"waiting for authority %s, which signed Certificate %s, to be trusted", own, certificate.Name)
	}
	const why = "it is not signed by a trusted authority"
	if err := Reissue(ctx, c, certificate, why); err != nil {
		return err
	}
	return conditions.Wait("CertificateNotTrusted", "reissuing Certificate %s: %s", certificate.Name, why)
}

// hasSigned reports whether the current key of a CA has signed a certificate.
func hasSigned(ctx context.Context, c client.Client, certificate *certmanager.Certificate, authority string) (bool, error) {
	var pair, own corev1.Secret
	for name, secret := range map[string]*corev1.Secret{certificate.Spec.SecretName: &pair, authority: &own} {
		if err := c.Get(ctx, client.ObjectKey{Namespace: certificate.Namespace, Name: name}, secret); client.IgnoreNotFound(err) != nil {
			return false, err
		}
	}
	return SignedBy(pair.Data[corev1.TLSCertKey], own.Data[corev1.TLSCertKey]), nil
}

// Reissue renews a certificate as cmctl does, unless it is already being renewed.
func Reissue(ctx context.Context, c client.Client, certificate *certmanager.Certificate, why string) error {
	live := &unstructured.Unstructured{} // the complete status, as cert-manager has written it
	live.SetGroupVersionKind(certmanager.SchemeGroupVersion.WithKind("Certificate"))
	if err := c.Get(ctx, client.ObjectKeyFromObject(certificate), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := live.DeepCopy()
	all, _, err := unstructured.NestedSlice(live.Object, "status", "conditions")
	if err != nil {
		return err
	}
	issuing := func(condition any) bool {
		fields, _ := condition.(map[string]any)
		return fields["type"] == "Issuing"
	}
	if slices.ContainsFunc(all, func(condition any) bool { return issuing(condition) && condition.(map[string]any)["status"] == "True" }) {
		return nil
	}
	all = slices.DeleteFunc(all, issuing)
	all = append(all, map[string]any{"type": "Issuing", "status": "True", "reason": "ManuallyTriggered",
		"message": why, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		"observedGeneration": live.GetGeneration()})
	if err := unstructured.SetNestedSlice(live.Object, all, "status", "conditions"); err != nil {
		return err
	}
	return c.Status().Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
