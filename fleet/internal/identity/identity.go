// Package identity is what proves that a client is the agent of a cluster: names, and the certificates that the fleet issues.
package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// Group is the group of agents with a certificate.
	Group = "fleet:agents"

	userPrefix      = "fleet:cluster:"
	keyPrefix       = "fleet:key:"
	bootstrapPrefix = "system:serviceaccount:" + v1alpha1.Namespace + ":"
	// lifetime of a certificate of an agent.
	lifetime = 7 * 24 * time.Hour
	// authorityLifetime is that of the authority.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// skew is how far clocks may differ.
	skew = 5 * time.Minute
)

// IsAgent reports whether a user has a certificate as the agent of a cluster, whose first key is the approved one. Without an approved
// key, no user is the agent.
func IsAgent(u user.Info, cluster, approvedKey string) bool {
	groups := u.GetGroups()
	return u.GetName() == userPrefix+cluster && slices.Contains(groups, Group) &&
		approvedKey != "" && slices.Contains(groups, keyPrefix+approvedKey)
}

// IsBootstrap reports whether a user is the service account of the provider with which the agent of a cluster requests its first
// certificate. Service accounts of the same name in other workspaces are other users.
func IsBootstrap(u user.Info, provider, cluster string) bool {
	return u.GetName() == bootstrapPrefix+cluster && slices.Equal(u.GetExtra()[logicalcluster.UserExtraKey], []string{provider})
}

// Authority issues certificates of agents.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority creates an authority, and returns its certificate and key in PEM.
func NewAuthority(now time.Time) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kcp-fleet"}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	key, err = MarshalKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, err
}

// MarshalKey returns a private key in PEM.
func MarshalKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// ParseAuthority returns the authority with a certificate and key in PEM.
func ParseAuthority(certificate, key []byte) (*Authority, error) {
	parsed, err := ParseCertificate(certificate)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, errors.New("the key of the authority is not PEM")
	}
	private, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("key of the authority: %w", err)
	}
	return &Authority{parsed, private}, nil
}

// ParseCertificate returns the first certificate in PEM.
func ParseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// NewRequest returns a certificate signing request for a key, in PEM.
func NewRequest(key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), err
}

// parseRequest returns a request, and the fingerprint of its key.
func parseRequest(text string) (*x509.CertificateRequest, string, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, "", errors.New("status.request must be one certificate signing request in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return nil, "", fmt.Errorf("status.request: %w", err)
	}
	sum := sha256.Sum256(request.RawSubjectPublicKeyInfo)
	return request, hex.EncodeToString(sum[:]), nil
}

// Fingerprint returns the fingerprint of the public key of a request in PEM.
func Fingerprint(request string) (string, error) {
	_, fingerprint, err := parseRequest(request)
	return fingerprint, err
}

// IsFor reports whether a certificate in PEM has the key of a request.
func IsFor(certificate, request string) bool {
	parsed, err := ParseCertificate([]byte(certificate))
	if err != nil {
		return false
	}
	sum := sha256.Sum256(parsed.RawSubjectPublicKeyInfo)
	fingerprint, err := Fingerprint(request)
	return err == nil && fingerprint == hex.EncodeToString(sum[:])
}

// Issue returns a certificate for the agent of a cluster, in PEM. It takes nothing but the public key from the request. The certificate is
// valid while the Cluster has the approved key: that of the first certificate, with which this one was requested.
func (a *Authority) Issue(cluster, approvedKey, request string, now time.Time) (string, error) {
	parsed, _, err := parseRequest(request)
	if err != nil {
		return "", err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return "", err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: userPrefix + cluster, Organization: []string{Group, keyPrefix + approvedKey}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(lifetime), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, parsed.PublicKey, a.key)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))) + "\n", nil
}
