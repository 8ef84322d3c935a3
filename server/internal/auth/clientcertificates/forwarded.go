package clientcertificates

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Header has the client certificate of a request that a front proxy forwards, in base64 of DER. The client has proved to the front proxy
// that it has the key.
const Header = "X-Kcp-Client-Certificate"

// maxForwarded is the maximum size of a certificate in the header, in bytes of DER. Certificates of an Authority are smaller.
const maxForwarded = 8 << 10

// Presented returns the client certificate of a request if it claims to be one of an Authority, and nil otherwise. It is not verified.
func Presented(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Issuer.CommonName != commonName {
		return nil
	}
	return r.TLS.PeerCertificates[0]
}

// ClusterOf returns the logical cluster in a certificate of an Authority; empty if it has none.
func ClusterOf(certificate *x509.Certificate) logicalcluster.Name {
	cluster, _, _ := clusterOf(certificate)
	return cluster
}

// Format returns the value of Header for a certificate.
func Format(certificate *x509.Certificate) (string, error) {
	if len(certificate.Raw) > maxForwarded {
		return "", fmt.Errorf("the client certificate has %d bytes; the limit is %d", len(certificate.Raw), maxForwarded)
	}
	return base64.StdEncoding.EncodeToString(certificate.Raw), nil
}

// Parse returns the certificate in a value of Header.
func Parse(value string) (*x509.Certificate, error) {
	if len(value) > base64.StdEncoding.EncodedLen(maxForwarded) {
		return nil, errors.New("the forwarded client certificate is too large")
	}
	der, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return nil, fmt.Errorf("reading the forwarded client certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// NewHint returns the certificate of an authority that signs nothing. A front proxy names it in TLS handshakes: all authorities of shards
// have its name, and clients present only certificates of authorities that are named.
func NewHint(now time.Time) (dynamiccertificates.CAContentProvider, error) {
	certificate, _, err := generate(now)
	if err != nil {
		return nil, err
	}
	return dynamiccertificates.NewStaticCAContent(commonName, certificate)
}
