package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// A request is kept for maxAgeDone after it was issued or refused, and for maxAgePending while it waits. Kubernetes has the same times.
const (
	maxAgeDone    = time.Hour
	maxAgePending = 24 * time.Hour
)

// reasonToRemove returns why a request is not needed any more at the time now, and the empty string if it is needed.
func reasonToRemove(csr *certificatesv1.CertificateSigningRequest, now time.Time) string {
	olderThan := func(since time.Time, age time.Duration) bool { return !since.IsZero() && now.Sub(since) > age }
	if csr.DeletionTimestamp != nil {
		return ""
	}
	if len(csr.Status.Conditions) == 0 && olderThan(csr.CreationTimestamp.Time, maxAgePending) {
		return "it was neither approved nor denied"
	}
	issued := len(csr.Status.Certificate) > 0
	for _, condition := range csr.Status.Conditions {
		since := condition.LastUpdateTime.Time
		switch condition.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			if olderThan(since, maxAgeDone) {
				return "it was refused"
			}
		case certificatesv1.CertificateApproved:
			switch {
			case issued && olderThan(since, maxAgeDone):
				return "its certificate was issued"
			case issued && expired(csr.Status.Certificate, now):
				return "its certificate has expired"
			case !issued && olderThan(since, maxAgePending):
				return "it was approved but not signed"
			}
		}
	}
	return ""
}

// expired reports whether the first certificate of a chain in PEM has expired.
func expired(chain []byte, now time.Time) bool {
	block, _ := pem.Decode(chain)
	if block == nil {
		return false
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.After(certificate.NotAfter)
}
