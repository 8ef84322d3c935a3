package certificates

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

func TestTheServerSignsApprovedRequestsOfItsSigner(t *testing.T) {
	signer := func(name string) csrOption {
		return func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = name }
	}
	own := signer(certificatesv1.KubeAPIServerClientSignerName)
	approved, denied, failed := condition(certificatesv1.CertificateApproved, 0), condition(certificatesv1.CertificateDenied, 0), condition(certificatesv1.CertificateFailed, 0)
	for name, test := range map[string]struct {
		csr    *certificatesv1.CertificateSigningRequest
		signed bool
	}{
		"approved":                    {csr(own, approved), true},
		"not approved":                {csr(own), false},
		"denied":                      {csr(own, denied), false},
		"refused":                     {csr(own, approved, failed), false},
		"signed":                      {csr(own, approved, certificate([]byte("x"))), false},
		"being deleted":               {csr(own, approved, deleting), false},
		"for another signer":          {csr(signer("example.com/own"), approved), false},
		"for a signer of kubelets":    {csr(signer(certificatesv1.KubeAPIServerClientKubeletSignerName), approved), false},
		"for a signer without a name": {csr(approved), false},
	} {
		if got := mustSign(test.csr); got != test.signed {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
