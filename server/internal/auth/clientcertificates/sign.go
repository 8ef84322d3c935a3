package clientcertificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// maxDuration is the maximum and default validity of a certificate.
	maxDuration = 90 * 24 * time.Hour
	// minDuration is the minimum validity, as in Kubernetes.
	minDuration = 10 * time.Minute
	// maxGroups and maxName limit the size of an identity, because it is part of every handshake.
	maxGroups, maxName = 64, 253
	// minRSA and maxRSA limit the size of RSA keys in bits; larger keys take long to verify.
	minRSA, maxRSA = 2048, 4096
)

// Invalid is the error for a request that will never be signed.
type Invalid struct{ Reason string }

func (i Invalid) Error() string { return i.Reason }

// Sign returns a certificate in PEM for a request in the logical cluster of lc, or an Invalid error.
func (a *Authority) Sign(ctx context.Context, lc *corev1alpha1.LogicalCluster,
	request *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	asked, err := check(request)
	if err != nil {
		return nil, Invalid{err.Error()}
	}
	if err := a.Load(ctx); err != nil { // a replaced authority must not sign
		return nil, err
	}
	number, err := serial()
	if err != nil {
		return nil, err
	}
	authority, now := a.current.Load(), a.clock.Now()
	end := now.Add(duration(request.Spec.ExpirationSeconds))
	if end.After(authority.certificate.NotAfter) {
		end = authority.certificate.NotAfter
	}
	usage := x509.KeyUsageDigitalSignature
	for _, u := range request.Spec.Usages {
		if u == certificatesv1.UsageKeyEncipherment {
			usage |= x509.KeyUsageKeyEncipherment
		}
	}
	// Only the name and the groups are taken from the request.
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: asked.Subject.CommonName, Organization: asked.Subject.Organization},
		URIs: []*url.URL{clusterURI(logicalcluster.Of(lc), lc.UID)}, NotBefore: now.Add(-backdate), NotAfter: end,
		KeyUsage: usage, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}, authority.certificate, asked.PublicKey, authority.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// duration returns the validity of a certificate.
func duration(seconds *int32) time.Duration {
	if seconds == nil {
		return maxDuration
	}
	return min(max(time.Duration(*seconds)*time.Second, minDuration), maxDuration)
}

// check returns the request in a CertificateSigningRequest, or an error if it cannot be signed.
func check(request *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	if err := checkUsages(request.Spec.Usages); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(request.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("spec.request: must be a PEM block of type CERTIFICATE REQUEST")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	if err := checkKey(asked.PublicKey); err != nil {
		return nil, err
	}
	if err := asked.CheckSignature(); err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	return asked, checkIdentity(asked.Subject.CommonName, asked.Subject.Organization)
}

func checkUsages(usages []certificatesv1.KeyUsage) error {
	client := false
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageClientAuth:
			client = true
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		default:
			return fmt.Errorf("spec.usages: %q is not a usage of client certificates; supported usages are \"client auth\", \"digital "+
				"signature\" and \"key encipherment\"", u)
		}
	}
	if !client {
		return errors.New("spec.usages: must contain \"client auth\"")
	}
	return nil
}

func checkKey(key any) error {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSA || bits > maxRSA {
			return fmt.Errorf("spec.request: the RSA key has %d bits; %d to %d are required", bits, minRSA, maxRSA)
		}
	case *ecdsa.PublicKey:
		if bits := key.Curve.Params().BitSize; bits < 256 {
			return fmt.Errorf("spec.request: the curve %s has %d bits; at least 256 are required", key.Curve.Params().Name, bits)
		}
	case ed25519.PublicKey:
	default:
		return errors.New("spec.request: the key must be an RSA, ECDSA or Ed25519 key")
	}
	return nil
}

// checkIdentity returns an error if a certificate with the name and groups must not exist.
func checkIdentity(name string, groups []string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("spec.request: the common name, which is the user name, must have 1 to %d bytes, but has %d", maxName, len(name))
	}
	if len(groups) > maxGroups {
		return fmt.Errorf("spec.request: the subject has %d organizations, which are the groups of the user; at most %d are allowed",
			len(groups), maxGroups)
	}
	if authorization.IsReserved(name) {
		return fmt.Errorf("spec.request: the common name %q is reserved: certificates are not signed for users whose names begin "+
			"with \"system:\" or %q", name, authorization.BindingPrefix)
	}
	for _, group := range groups {
		if group == "" || len(group) > maxName {
			return fmt.Errorf(
				"spec.request: an organization, which is a group of the user, must have 1 to %d bytes, but one has %d",
				maxName,
				len(group),
			)
		}
		if authorization.IsReserved(group) {
			return fmt.Errorf("spec.request: the organization %q is reserved: certificates are not signed for groups whose names begin with "+
				"\"system:\" or %q", group, authorization.BindingPrefix)
		}
	}
	return nil
}

// clusterScheme is the scheme of the URI with the logical cluster of a certificate: kcp-logical-cluster:<name>:<UID>.
const clusterScheme = "kcp-logical-cluster"

func clusterURI(cluster logicalcluster.Name, uid types.UID) *url.URL {
	return &url.URL{Scheme: clusterScheme, Opaque: string(cluster) + ":" + string(uid)}
}

// clusterOf returns the logical cluster in a certificate, and the UID of its object.
func clusterOf(certificate *x509.Certificate) (logicalcluster.Name, types.UID, bool) {
	if len(certificate.URIs) != 1 || certificate.URIs[0].Scheme != clusterScheme {
		return "", "", false
	}
	text := certificate.URIs[0].Opaque
	i := strings.LastIndex(text, ":")
	if i <= 0 || i == len(text)-1 {
		return "", "", false
	}
	return logicalcluster.Name(text[:i]), types.UID(text[i+1:]), true
}
