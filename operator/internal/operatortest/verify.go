package operatortest

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Verify verifies a certificate, with the chain behind it, as a peer does that trusts authorities. What is missing or empty is an error,
// too.
func Verify(chain, authorities []byte) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return errors.New("there is no authority")
	}
	block, rest := pem.Decode(chain)
	if block == nil {
		return errors.New("there is no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	between.AppendCertsFromPEM(rest)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// AllFaults is the environment variable that, set to all, has tests of faults delete every pair of objects, in place of a choice.
const AllFaults = "KCP_FAULTS"
