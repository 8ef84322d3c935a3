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
	// year is the validity of a serving certificate that the server creates.
	year = 365 * 24 * time.Hour
	// renewBefore is the minimum remaining validity when the server starts. The server replaces a certificate that expires earlier.
	renewBefore = 90 * 24 * time.Hour
)

// madeHere matches the names of the issuers of certificates that the server creates.
var madeHere = regexp.MustCompile(`-ca@[0-9]+$`)

// ensureSigningKey creates a private key for service account tokens in file unless the file exists.
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

// renews reports whether the server has created the certificate in a file, and must replace it: the certificate expires soon, or the key in
// keyFile does not match, because a process ended between writing the two files.
func renews(certificateFile, keyFile string) bool {
	certificates, err := certutil.CertsFromFile(certificateFile)
	if err != nil || !madeHere.MatchString(certificates[0].Issuer.CommonName) {
		return false
	}
	_, err = tls.LoadX509KeyPair(certificateFile, keyFile)
	return err != nil || time.Until(certificates[0].NotAfter) < renewBefore
}

// ensureServingCertificate creates a certificate for host, names and addresses unless one exists that does not expire soon. Its certificate
// authority signs no other certificate. Upstream would use an RSA key, which takes about thirty times as long to sign a handshake.
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
	begin := now.Add(-time.Hour) // for clients whose clocks are behind
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

// replaceFile replaces a file atomically: a process that ends halfway leaves the previous content.
func replaceFile(file string, content []byte, mode fs.FileMode) error {
	if err := os.WriteFile(file+".new", content, mode); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
