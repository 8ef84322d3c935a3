package pki

import (
	"cmp"
	"context"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// again is the interval of checks for a ClusterIssuer, which is not watched.
const again = 30 * time.Second

// CAIssuer builds an Issuer that signs with the CA in a Secret.
func CAIssuer(namespace, name, secret string, labels map[string]string) *certmanager.Issuer {
	return &certmanager.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       certmanager.IssuerSpec{IssuerConfig: certmanager.IssuerConfig{CA: &certmanager.CAIssuer{SecretName: secret}}},
	}
}

// SelfSignedIssuer builds an Issuer for self-signed CAs.
func SelfSignedIssuer(namespace, name string, labels map[string]string) *certmanager.Issuer {
	return &certmanager.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       certmanager.IssuerSpec{IssuerConfig: certmanager.IssuerConfig{SelfSigned: &certmanager.SelfSignedIssuer{}}},
	}
}

// Issuer converts a reference to that of cert-manager, with all of its defaults set.
func Issuer(ref v1alpha1.ObjectReference) cmmeta.IssuerReference {
	return cmmeta.IssuerReference{
		Name: ref.Name, Kind: cmp.Or(ref.Kind, certmanager.IssuerKind), Group: cmp.Or(ref.Group, certmanager.SchemeGroupVersion.Group),
	}
}

// IssuerNamed returns a reference to an Issuer of cert-manager.
func IssuerNamed(name string) cmmeta.IssuerReference {
	return Issuer(v1alpha1.ObjectReference{Name: name})
}

// IssuerNames returns the names in references to Issuers. It ignores nil and other kinds.
func IssuerNames(references ...*v1alpha1.ObjectReference) []string {
	var names []string
	for _, ref := range references {
		if ref == nil {
			continue
		}
		if issuer := Issuer(*ref); issuer.Kind == certmanager.IssuerKind && issuer.Group == certmanager.SchemeGroupVersion.Group {
			names = append(names, issuer.Name)
		}
	}
	return names
}

// IssuerOf returns the issuer in a template, or nil.
func IssuerOf(template *v1alpha1.CertificateTemplate) *v1alpha1.ObjectReference {
	if template == nil || template.Spec == nil {
		return nil
	}
	return template.Spec.IssuerRef
}

// CheckIssuer returns an error if the issuer of a certificate, in a field of a spec, does not exist or cannot sign it. It does not check
// kinds of other groups than cert-manager's, nor kinds that the operator may not read because it is installed for single namespaces.
func CheckIssuer(ctx context.Context, c client.Reader, field string, certificate *certmanager.Certificate) error {
	var issuer certmanager.GenericIssuer
	ref := certificate.Spec.IssuerRef
	key := client.ObjectKey{Name: ref.Name}
	switch {
	case ref.Group != certmanager.SchemeGroupVersion.Group:
		return nil
	case ref.Kind == certmanager.ClusterIssuerKind:
		issuer = &certmanager.ClusterIssuer{}
	case ref.Kind == certmanager.IssuerKind:
		issuer, key.Namespace = &certmanager.Issuer{}, certificate.Namespace
	default:
		return conditions.Stall("UnknownIssuerKind", "%s: cert-manager has no kind of issuers %q: use Issuer or ClusterIssuer", field, ref.Kind)
	}
	err := c.Get(ctx, key, issuer)
	switch {
	case apierrors.IsNotFound(err):
		missing := conditions.Stall("IssuerNotFound", "%s: there is no %s %s: create it, or name another", field, ref.Kind, ref.Name)
		if key.Namespace == "" {
			missing = conditions.Unwatched(again, missing)
		}
		return missing
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return err
	case certificate.Spec.IsCA && issuer.GetSpec().ACME != nil:
		return conditions.Unwatched(again, conditions.Stall("IssuerCannotSign", "%s: %s %s uses ACME, which signs no certificate "+
			"authorities: name another, for example one of the type ca", field, ref.Kind, ref.Name))
	}
	return nil
}
