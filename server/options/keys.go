package options

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// year is how long a serving certificate that the server makes for itself is valid.
const year = 365 * 24 * time.Hour

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
	return os.WriteFile(file, encoded, 0o600)
}

// ensureServingCertificate makes a certificate for host, names and addresses, which an authority has signed that signs nothing else, unless
// there is one. Upstream would make one with an RSA key, which signs a handshake in some thirty times as long.
func ensureServingCertificate(certificateFile, keyFile string, host net.IP, names []string, addresses []net.IP) error {
	if exists, err := certutil.CanReadCertAndKey(certificateFile, keyFile); exists || err != nil {
		return err
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	begin := time.Now().Add(-time.Hour) // clocks differ
	authority, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: fmt.Sprintf("%s-ca@%d", host, time.Now().Unix()), NotBefore: begin}, authorityKey)
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
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("%s@%d", host, time.Now().Unix())}, NotBefore: begin, NotAfter: begin.Add(year),
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
	if err := certutil.WriteCert(certificateFile, encoded); err != nil {
		return err
	}
	return keyutil.WriteKey(keyFile, encodedKey)
}
