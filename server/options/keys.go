package options

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"regexp"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// year is how long a serving certificate that the server makes for itself is valid.
	year = 365 * 24 * time.Hour
	// renewBefore is how long it must be valid still when the server starts. Otherwise the server makes another one.
	renewBefore = 90 * 24 * time.Hour
)

// madeHere matches the names of the authorities of certificates that the server makes for itself.
var madeHere = regexp.MustCompile(`-ca@[0-9]+$`)

// ensureSigningKey makes a private key for service account tokens in file unless there is one.
func ensureSigningKey(file string) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return replaceFile(file, encoded, 0o600)
}

// renews tells whether the server has made the certificate in a file for itself, and it ends soon, or the key in keyFile is not its own:
// a process that ends between writing the two leaves that.
func renews(certificateFile, keyFile string) bool {
	certificates, err := certutil.CertsFromFile(certificateFile)
	if err != nil || !madeHere.MatchString(certificates[0].Issuer.CommonName) {
		return false
	}
	_, err = tls.LoadX509KeyPair(certificateFile, keyFile)
	return err != nil || time.Until(certificates[0].NotAfter) < renewBefore
}

// ensureServingCertificate makes a certificate for host, names and addresses, which an authority has signed that signs nothing else, unless
// there is one that does not end soon. Upstream would make one with an RSA key, which signs a handshake in some thirty times as long.
func ensureServingCertificate(certificateFile, keyFile string, host net.IP, names []string, addresses []net.IP) error {
	if !renews(certificateFile, keyFile) {
		if exists, err := certutil.CanReadCertAndKey(certificateFile, keyFile); exists || err != nil {
			return err
		}
	}
	return makeServingCertificate(certificateFile, keyFile, time.Now(), host, names, addresses)
}

func makeServingCertificate(certificateFile, keyFile string, now time.Time, host net.IP, names []string, addresses []net.IP) error {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	begin := now.Add(-time.Hour) // clocks differ
	authority, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: fmt.Sprintf("%s-ca@%d", host, now.Unix()),
		NotBefore: begin}, authorityKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	signed, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("%s@%d", host, now.Unix())}, NotBefore: begin, NotAfter: begin.Add(year),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		DNSNames: names, IPAddresses: append([]net.IP{host}, addresses...),
	}, authority, key.Public(), authorityKey)
	if err != nil {
		return err
	}
	certificate, err := x509.ParseCertificate(signed)
	if err != nil {
		return err
	}
	encoded, err := certutil.EncodeCertificates(certificate, authority)
	if err != nil {
		return err
	}
	encodedKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	if err := replaceFile(certificateFile, encoded, 0o644); err != nil {
		return err
	}
	return replaceFile(keyFile, encodedKey, 0o600)
}

// replaceFile writes a file at once: a process that ends halfway leaves the former content.
func replaceFile(file string, content []byte, mode fs.FileMode) error {
	if err := os.WriteFile(file+".new", content, mode); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
