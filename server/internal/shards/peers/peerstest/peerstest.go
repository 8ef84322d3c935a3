// Package peerstest makes certificates for tests of peers.
package peerstest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/server/internal/shards/peers"
)

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	// PEM is the certificate of the authority, File a file with it.
	PEM  []byte
	File string
}

// NewAuthority returns a new authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	return NewNamedAuthority(t, "test")
}

// NewNamedAuthority returns a new authority with a common name.
func NewNamedAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{}
	a.certificate, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
	a.File = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(a.File, a.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign signs a certificate with a new key; the first one is that of the authority.
func (a *Authority) sign(t testing.TB, template *x509.Certificate) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// VerifyOptions implements peers.Authorities.
func (a *Authority) VerifyOptions() (x509.VerifyOptions, bool) {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return x509.VerifyOptions{Roots: pool}, true
}

// Certificate returns a certificate for clients and servers on loopback addresses, with the given URIs.
func (a *Authority) Certificate(t testing.TB, name string, uris ...string) tls.Certificate {
	t.Helper()
	return a.Signed(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, URIs: parse(t, uris), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
}

// Signed returns a certificate like the template, with a new key.
func (a *Authority) Signed(t testing.TB, template *x509.Certificate) tls.Certificate {
	t.Helper()
	certificate, key := a.sign(t, template)
	return tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}
}

func parse(t testing.TB, uris []string) (all []*url.URL) {
	t.Helper()
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, u)
	}
	return all
}

// Peer returns the certificate of a peer.
func (a *Authority) Peer(t testing.TB, kind peers.Kind, name string) tls.Certificate {
	t.Helper()
	return a.Certificate(t, name, peers.Identity{Kind: kind, Name: name}.String())
}

// ClientConfig returns how a client with a certificate connects to a server with a certificate of a.
func (a *Authority) ClientConfig(t testing.TB, certificate tls.Certificate) rest.TLSClientConfig {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return rest.TLSClientConfig{
		CAData: a.PEM, KeyData: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		CertData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
	}
}
