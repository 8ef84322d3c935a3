package pki

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/certmanager"
)

// CAIssuer builds an Issuer, named name, that signs with the authority in a Secret.
func CAIssuer(namespace, name, secret string, labels map[string]string) *certmanager.Issuer {
	return &certmanager.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       certmanager.IssuerSpec{CA: &certmanager.CA{SecretName: secret}},
	}
}

// SelfSignedIssuer builds an Issuer for authorities that nobody vouches for.
func SelfSignedIssuer(namespace, name string, labels map[string]string) *certmanager.Issuer {
	return &certmanager.Issuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       certmanager.IssuerSpec{SelfSigned: &certmanager.SelfSigned{}},
	}
}

// Issuer is a reference in the words of cert-manager, with nothing left out that cert-manager would fill in.
func Issuer(ref v1alpha1.ObjectReference) certmanager.ObjectReference {
	return certmanager.ObjectReference{
		Name: ref.Name, Kind: cmp.Or(ref.Kind, certmanager.IssuerKind), Group: cmp.Or(ref.Group, certmanager.SchemeGroupVersion.Group),
	}
}

// IssuerNamed is a reference to an Issuer of cert-manager.
func IssuerNamed(name string) certmanager.ObjectReference {
	return Issuer(v1alpha1.ObjectReference{Name: name})
}
