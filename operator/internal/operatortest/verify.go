package operatortest

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Verify verifies a certificate, with its chain, as a peer that trusts the authorities does. A missing or empty input is an error. Verify
// caches results, because tests of faults verify the same certificates many times.
func Verify(chain, authorities []byte) error {
	key := sha256.Sum256(slices.Concat(chain, []byte{0}, authorities))
	if known, ok := verified.Load(key); ok {
		return known.(result).err
	}
	err := verify(chain, authorities)
	verified.Store(key, result{err})
	return err
}

var verified sync.Map // from the hash of both arguments to a result

type result struct{ err error }

func verify(chain, authorities []byte) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return errors.New("no authority")
	}
	block, rest := pem.Decode(chain)
	if block == nil {
		return errors.New("no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	between.AppendCertsFromPEM(rest)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// AllFaults is the environment variable that, set to all, makes tests of faults delete every pair of objects instead of a selection.
const AllFaults = "KCP_FAULTS"
