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

// again is when a ClusterIssuer is looked for again, of which no watch tells.
const again = 30 * time.Second

// CAIssuer builds an Issuer, named name, that signs with the authority in a Secret.
func CAIssuer(namespace, name, secret string, labels map[string]string) *certmanager.Issuer {
	return &certmanager.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       certmanager.IssuerSpec{IssuerConfig: certmanager.IssuerConfig{CA: &certmanager.CAIssuer{SecretName: secret}}},
	}
}

// SelfSignedIssuer builds an Issuer for authorities that nobody vouches for.
func SelfSignedIssuer(namespace, name string, labels map[string]string) *certmanager.Issuer {
	return &certmanager.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       certmanager.IssuerSpec{IssuerConfig: certmanager.IssuerConfig{SelfSigned: &certmanager.SelfSignedIssuer{}}},
	}
}

// Issuer is a reference in the words of cert-manager, with nothing left out that cert-manager would fill in.
func Issuer(ref v1alpha1.ObjectReference) cmmeta.IssuerReference {
	return cmmeta.IssuerReference{
		Name: ref.Name, Kind: cmp.Or(ref.Kind, certmanager.IssuerKind), Group: cmp.Or(ref.Group, certmanager.SchemeGroupVersion.Group),
	}
}

// IssuerNamed is a reference to an Issuer of cert-manager.
func IssuerNamed(name string) cmmeta.IssuerReference {
	return Issuer(v1alpha1.ObjectReference{Name: name})
}

// IssuerNames returns the names of those of references that are to Issuers, nil ones left out.
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

// IssuerOf is the issuer that a template asks for, or nil.
func IssuerOf(template *v1alpha1.CertificateTemplate) *v1alpha1.ObjectReference {
	if template == nil || template.Spec == nil {
		return nil
	}
	return template.Spec.IssuerRef
}

// CheckIssuer returns an error if an issuer that a field of a spec names does not exist. Kinds that are not cert-manager's own are
// not looked for, nor those that the operator may not see because it is installed for single namespaces.
func CheckIssuer(ctx context.Context, c client.Reader, namespace, field string, ref cmmeta.IssuerReference) error {
	var issuer client.Object
	key := client.ObjectKey{Name: ref.Name}
	switch {
	case ref.Group != certmanager.SchemeGroupVersion.Group:
		return nil
	case ref.Kind == certmanager.ClusterIssuerKind:
		issuer = &certmanager.ClusterIssuer{}
	case ref.Kind == certmanager.IssuerKind:
		issuer, key.Namespace = &certmanager.Issuer{}, namespace
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
	}
	return err
}
