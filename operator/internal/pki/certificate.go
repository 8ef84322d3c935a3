// Package pki builds the Certificates and Issuers that the operator requests from cert-manager, with the same defaults and templates for
// every component, and reports which are not ready.
package pki

import (
	"cmp"
	"maps"
	"slices"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

const (
	day = 24 * time.Hour
	// Year is how long a leaf certificate is valid by default.
	Year = 365 * day
)

// Request has the parameters of a certificate.
type Request struct {
	Namespace string
	// Name of the Certificate and of its Secret.
	Name   string
	Labels map[string]string
	Issuer cmmeta.IssuerReference
	// CommonName and Organizations are the user and the groups of a client.
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPAddresses   []string
	// URIs say which peer of an installation a client is.
	URIs   []string
	Usages []certmanager.KeyUsage
	// Authority requests a CA certificate.
	Authority bool
	// KeepKey keeps the key on renewal, for certificates that others trust by their key.
	KeepKey bool
	// Duration and RenewBefore are zero for the defaults.
	Duration, RenewBefore time.Duration
	// Template customizes the certificate. It may be nil.
	Template *v1alpha1.CertificateTemplate
}

// Usages of certificates.
var (
	ServerUsages = []certmanager.KeyUsage{"server auth", "key encipherment", "digital signature"}
	ClientUsages = []certmanager.KeyUsage{"client auth"}
)

// Certificate builds a Certificate. Renewal keeps the keys of CAs, and those with KeepKey, because with a new key, certificates and tokens
// that the old key signed would no longer be trusted.
func Certificate(r Request) *certmanager.Certificate {
	duration, renewBefore := Year, 7*day
	if r.Authority {
		duration, renewBefore = 10*Year, 30*day
	}
	if r.Duration != 0 {
		duration, renewBefore = r.Duration, r.RenewBefore
	}
	c := &certmanager.Certificate{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name, Labels: r.Labels},
		Spec: certmanager.CertificateSpec{
			CommonName: r.CommonName, DNSNames: union(r.DNSNames), IPAddresses: union(r.IPAddresses), URIs: r.URIs, SecretName: r.Name,
			SecretTemplate: &certmanager.CertificateSecretTemplate{Labels: r.Labels}, IssuerRef: r.Issuer, IsCA: r.Authority, Usages: r.Usages,
			Duration:   &metav1.Duration{Duration: duration},
			PrivateKey: &certmanager.CertificatePrivateKey{Algorithm: "RSA", Size: 4096, Encoding: "PKCS1", RotationPolicy: "Always"},
		},
	}
	if slices.Contains(r.Usages, "server auth") && !r.Authority && !r.KeepKey {
		// A server signs each handshake before it has authenticated the client: 5 ms with an RSA key of the default size, 0.03 ms with this key.
		c.Spec.PrivateKey.Algorithm, c.Spec.PrivateKey.Size = "ECDSA", 256
	}
	if renewBefore != 0 {
		c.Spec.RenewBefore = &metav1.Duration{Duration: renewBefore}
	}
	if r.Authority || r.KeepKey {
		c.Spec.PrivateKey.RotationPolicy = "Never"
	}
	if len(r.Organizations) > 0 {
		c.Spec.Subject = &certmanager.X509Subject{Organizations: union(r.Organizations)}
	}
	if r.Template != nil {
		change(c, r.Template)
	}
	return c
}

// Issued returns nil if a Certificate is ready, or an error to wait for it. The argument is empty if the Certificate does not exist.
func Issued(name string, live *certmanager.Certificate) error {
	if why := conditions.Unready(live); why != "" {
		return conditions.Wait("CertificateNotReady", "waiting for Certificate %s: %s", name, why)
	}
	return nil
}

// change applies a template: it adds names and subject attributes, and replaces other fields. It does not change labels and annotations
// of the operator.
func change(c *certmanager.Certificate, template *v1alpha1.CertificateTemplate) {
	if m := template.Metadata; m != nil {
		c.Labels, c.Annotations = Overlay(m.Labels, c.Labels), Overlay(m.Annotations, c.Annotations)
	}
	t := template.Spec
	if t == nil {
		return
	}
	names := c.Spec.DNSNames
	if t.IssuerRef != nil {
		c.Spec.IssuerRef = Issuer(*t.IssuerRef)
		if len(t.DNSNames) > 0 {
			names = nil // the issuer may refuse names inside of the cluster
		}
	}
	c.Spec.DNSNames, c.Spec.IPAddresses = union(names, t.DNSNames), union(c.Spec.IPAddresses, t.IPAddresses)
	if m := t.SecretTemplate; m != nil {
		c.Spec.SecretTemplate.Labels = Overlay(m.Labels, c.Spec.SecretTemplate.Labels)
		c.Spec.SecretTemplate.Annotations = Overlay(m.Annotations, nil)
	}
	if t.Duration != nil {
		c.Spec.Duration = &t.Duration.Duration
	}
	if t.RenewBefore != nil {
		c.Spec.RenewBefore = &t.RenewBefore.Duration
	} else if t.Duration != nil && c.Spec.RenewBefore != nil && c.Spec.RenewBefore.Duration >= c.Spec.Duration.Duration {
		c.Spec.RenewBefore = nil // default of cert-manager, because the default here may exceed the new duration
	}
	changeSubject(c, t.Subject)
	changeKey(c.Spec.PrivateKey, t.PrivateKey)
}

func changeSubject(c *certmanager.Certificate, t *v1alpha1.X509Subject) {
	if t == nil {
		return
	}
	if c.Spec.Subject == nil {
		c.Spec.Subject = &certmanager.X509Subject{}
	}
	s := c.Spec.Subject
	for _, list := range []struct {
		is  *[]string
		add []string
	}{
		{&s.Organizations, t.Organizations}, {&s.Countries, t.Countries}, {&s.OrganizationalUnits, t.OrganizationalUnits},
		{&s.Localities, t.Localities}, {&s.Provinces, t.Provinces}, {&s.StreetAddresses, t.StreetAddresses},
		{&s.PostalCodes, t.PostalCodes},
	} {
		*list.is = union(*list.is, list.add)
	}
	s.SerialNumber = cmp.Or(t.SerialNumber, s.SerialNumber)
}

// maxCurve is the size of the largest key of an elliptic curve, in bits.
const maxCurve = 521

func changeKey(key *certmanager.CertificatePrivateKey, t *v1alpha1.PrivateKeyTemplate) {
	if t == nil {
		return
	}
	algorithm := certmanager.PrivateKeyAlgorithm(t.Algorithm)
	if algorithm == "" && t.Size > maxCurve {
		algorithm = certmanager.RSAKeyAlgorithm // only RSA keys have this size
	}
	if algorithm != "" && algorithm != key.Algorithm {
		key.Algorithm, key.Size = algorithm, 0 // the default size of cert-manager
	}
	key.Size, key.Encoding = cmp.Or(t.Size, key.Size), cmp.Or(certmanager.PrivateKeyEncoding(t.Encoding), key.Encoding)
	key.RotationPolicy = cmp.Or(certmanager.PrivateKeyRotationPolicy(t.RotationPolicy), key.RotationPolicy)
}

// Overlay returns the entries of both maps. Those of over take precedence.
func Overlay(under, over map[string]string) map[string]string {
	if len(under)+len(over) == 0 {
		return nil
	}
	all := make(map[string]string, len(under)+len(over))
	maps.Copy(all, under)
	maps.Copy(all, over)
	return all
}

func union(lists ...[]string) []string {
	all := slices.DeleteFunc(slices.Concat(lists...), func(s string) bool { return s == "" })
	slices.Sort(all)
	return slices.Clip(slices.Compact(all))
}
