package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// How long a request is kept after it was answered, and while it waits for an answer: the times of Kubernetes.
const (
	keepAnswered = time.Hour
	keepWaiting  = 24 * time.Hour
)

// reasonToRemove returns why a request is not needed any more at the time now, or nothing if it is.
func reasonToRemove(csr *certificatesv1.CertificateSigningRequest, now time.Time) string {
	olderThan := func(since time.Time, age time.Duration) bool { return !since.IsZero() && now.Sub(since) > age }
	if csr.DeletionTimestamp != nil {
		return ""
	}
	if len(csr.Status.Conditions) == 0 && olderThan(csr.CreationTimestamp.Time, keepWaiting) {
		return "nobody approved or denied it"
	}
	issued := len(csr.Status.Certificate) > 0
	for _, condition := range csr.Status.Conditions {
		since := condition.LastUpdateTime.Time
		switch condition.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			if olderThan(since, keepAnswered) {
				return "it was refused"
			}
		case certificatesv1.CertificateApproved:
			switch {
			case issued && olderThan(since, keepAnswered):
				return "its certificate was issued"
			case issued && expired(csr.Status.Certificate, now):
				return "its certificate has expired"
			case !issued && olderThan(since, keepWaiting):
				return "it was approved, but nobody signed it"
			}
		}
	}
	return ""
}

// expired tells whether the first certificate of a chain in PEM cannot be used any more.
func expired(chain []byte, now time.Time) bool {
	block, _ := pem.Decode(chain)
	if block == nil {
		return false
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.After(certificate.NotAfter)
}
