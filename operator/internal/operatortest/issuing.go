package operatortest

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"slices"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/operator/internal/conditions"
)

// Certify issues certificates that can be verified, as cert-manager does: those without a Secret, or due for renewal, as soon as their
// issuer can sign. It ignores whether a former key of a CA signed a certificate.
func (c *Cluster) Certify(t testing.TB) {
	t.Helper()
	c.certifyAll(t, func(certmanager.Certificate) bool { return false })
}

// CertifyUnready is Certify for clusters with many certificates: it expects that the Secrets of ready ones exist.
func (c *Cluster) CertifyUnready(t testing.TB) {
	t.Helper()
	c.certifyAll(t, func(certificate certmanager.Certificate) bool { return conditions.Unready(&certificate) == "" })
}

func (c *Cluster) certifyAll(t testing.TB, skipped func(certmanager.Certificate) bool) {
	t.Helper()
	list := &certmanager.CertificateList{}
	if err := c.List(t.Context(), list, client.InNamespace(Namespace)); err != nil {
		t.Fatal(err)
	}
	list.Items = slices.DeleteFunc(list.Items, skipped)
	for issued := true; issued; { // the CA of the installation, the CAs that it signs, and their leaf certificates
		issued = false
		for i := range list.Items {
			issued = c.certify(t, &list.Items[i]) || issued
		}
	}
}

func (c *Cluster) certify(t testing.TB, certificate *certmanager.Certificate) (issued bool) {
	t.Helper()
	secret := &corev1.Secret{}
	err := c.Get(t.Context(), Key(certificate.Spec.SecretName), secret)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	renew := slices.ContainsFunc(certificate.Status.Conditions, func(condition certmanager.CertificateCondition) bool {
		return condition.Type == "Issuing" && condition.Status == cmmeta.ConditionTrue
	})
	ready := certmanager.CertificateCondition{Type: "Ready", Status: cmmeta.ConditionTrue, ObservedGeneration: certificate.Generation}
	if missing := apierrors.IsNotFound(err); missing || renew {
		if data := c.sign(t, certificate, secret); data == nil {
			ready.Status, ready.Message = cmmeta.ConditionFalse, "its issuer is not ready"
		} else {
			secret.Namespace, secret.Name, secret.Data = certificate.Namespace, certificate.Spec.SecretName, data
			if template := certificate.Spec.SecretTemplate; template != nil {
				secret.Labels = template.Labels
			}
			secret.Annotations = map[string]string{
				"cert-manager.io/issuer-name": certificate.Spec.IssuerRef.Name, "cert-manager.io/issuer-kind": certificate.Spec.IssuerRef.Kind,
			}
			if issued = true; missing {
				c.MustCreate(t, secret)
			} else {
				c.MustUpdate(t, secret)
			}
		}
	}
	if len(certificate.Status.Conditions) == 1 && certificate.Status.Conditions[0] == ready {
		return issued
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error { // the operator may run
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(certificate), certificate); err != nil {
			return err
		}
		certificate.Status.Conditions = []certmanager.CertificateCondition{ready}
		return c.Status().Update(t.Context(), certificate)
	})
	if err != nil {
		t.Fatal(err)
	}
	return issued
}

// sign returns the data of a Secret, or nil if the issuer cannot sign now.
func (c *Cluster) sign(t testing.TB, certificate *certmanager.Certificate, before *corev1.Secret) map[string][]byte {
	t.Helper()
	issuer := &certmanager.Issuer{}
	if err := c.Get(t.Context(), Key(certificate.Spec.IssuerRef.Name), issuer); err != nil {
		return nil
	}
	key := NewKey(t)
	if policy := certificate.Spec.PrivateKey; policy != nil && policy.RotationPolicy == "Never" && len(before.Data["tls.key"]) > 0 {
		key = parseKey(t, before.Data["tls.key"])
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: certificate.Spec.CommonName},
		DNSNames: certificate.Spec.DNSNames, IsCA: certificate.Spec.IsCA, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if template.IsCA {
		template.KeyUsage |= x509.KeyUsageCertSign
	}
	for _, uri := range certificate.Spec.URIs {
		parsed, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	parent, signer, chain := template, key, []byte(nil)
	if issuer.Spec.CA != nil {
		authority := &corev1.Secret{}
		if err := c.Get(t.Context(), Key(issuer.Spec.CA.SecretName), authority); err != nil {
			return nil
		}
		if block, _ := pem.Decode(authority.Data["tls.key"]); block == nil { // a test of something else has stored some text
			return nil
		}
		chain, signer = authority.Data["tls.crt"], parseKey(t, authority.Data["tls.key"])
		block, _ := pem.Decode(chain)
		var err error
		if parent, err = x509.ParseCertificate(block.Bytes); err != nil {
			t.Fatal(err)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	// The chain does not include a self-signed CA, which is in ca.crt.
	leaf := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	data := map[string][]byte{"tls.crt": leaf, "ca.crt": leaf,
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})}
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		data["ca.crt"] = pem.EncodeToMemory(block)
		if c, err := x509.ParseCertificate(block.Bytes); err != nil {
			t.Fatal(err)
		} else if c.CheckSignatureFrom(c) != nil {
			data["tls.crt"] = append(slices.Clone(data["tls.crt"]), data["ca.crt"]...)
		}
	}
	return data
}

func parseKey(t testing.TB, content []byte) *ecdsa.PrivateKey {
	t.Helper()
	block, _ := pem.Decode(content)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
