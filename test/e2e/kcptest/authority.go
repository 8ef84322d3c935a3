package kcptest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// lifetime is the validity of certificates, which outlasts every run of a test or of an installation on a machine of a developer.
const lifetime = 30 * 24 * time.Hour

// Authority is a CA that signs certificates for tests.
type Authority struct {
	// File contains the certificate of the CA.
	File string

	certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority creates a CA with that name, and writes its certificate to a directory.
func NewAuthority(dir, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		return nil, err
	}
	a := &Authority{filepath.Join(dir, name+".crt"), certificate, key}
	content, err := cert.EncodeCertificates(certificate)
	if err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.File, content, 0o600)
}

// Issue writes a certificate for the loopback address and its key, and returns the paths of both files.
func (a *Authority) Issue(dir, name string, organizations ...string) (certFile, keyFile string, err error) {
	return a.IssueTo(dir, name, Subject{CommonName: name, Organizations: organizations})
}

// Subject is the identity that a certificate proves.
type Subject struct {
	CommonName    string
	Organizations []string
	// URI is the subject alternative name that is a URI, if there is one.
	URI *url.URL
	// Addresses are those besides the loopback address.
	Addresses []net.IP
}

// IssueTo is Issue for any subject; name is the name of the files.
func (a *Authority) IssueTo(dir, name string, subject Subject) (certFile, keyFile string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: subject.CommonName, Organization: subject.Organizations},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: append([]net.IP{net.IPv4(127, 0, 0, 1)}, subject.Addresses...), DNSNames: []string{"localhost"},
	}
	if subject.URI != nil {
		template.URIs = []*url.URL{subject.URI}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return "", "", err
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return "", "", err
	}
	content, err := cert.EncodeCertificates(signed)
	if err != nil {
		return "", "", err
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.WriteFile(certFile, content, 0o600); err != nil {
		return "", "", err
	}
	return certFile, keyFile, os.WriteFile(keyFile, private, 0o600)
}

// Pool returns a pool that contains only this CA.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// TLSConfig returns the configuration of a server or client with a certificate of the CA.
func (a *Authority) TLSConfig(dir, name string) (*tls.Config, error) {
	certFile, keyFile, err := a.Issue(dir, name)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: a.Pool()}, err
}
