package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"slices"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
)

// Trusted returns the CAs to trust, in PEM, during the rotation of a CA's key: the first certificate of authority, without its chain, and
// those certificates of before that have other keys. A certificate that is renewed with its key replaces the former one. The number
// counts the certificates with other keys.
func Trusted(authority []byte, before ...[]byte) (all []byte, former int) {
	var trusted bytes.Buffer
	seen := map[string]bool{}
	add := func(block *pem.Block) {
		if key := key(block); !seen[key] {
			seen[key] = true
			trusted.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
		}
	}
	if blocks := certificates(authority); len(blocks) > 0 {
		add(blocks[0])
	}
	current := len(seen)
	for _, block := range certificates(slices.Concat(before...)) {
		add(block)
	}
	return trusted.Bytes(), len(seen) - current
}

// Keys returns the public keys of certificates, to compare them.
func Keys(pem []byte) []byte {
	var keys []byte
	for _, block := range certificates(pem) {
		keys = append(keys, key(block)...)
	}
	return keys
}

// AuthorityKey returns the ID of the key that signed a certificate, or nil if the certificate does not have it.
func AuthorityKey(certificate []byte) []byte {
	if c := first(certificate); c != nil {
		return c.AuthorityKeyId
	}
	return nil
}

// IsAuthority reports whether a certificate is one of a CA. It returns true if it cannot be parsed.
func IsAuthority(certificate []byte) bool {
	c := first(certificate)
	return c == nil || c.IsCA
}

// SignedBy reports whether a CA has signed a certificate. It returns true if one of them cannot be parsed.
func SignedBy(certificate, authority []byte) bool {
	c, by := first(certificate), first(authority)
	return c == nil || by == nil || c.CheckSignatureFrom(by) == nil
}

// Signer returns, in PEM, the former CA of an Issuer that has signed the certificate in a Secret. cert-manager writes it beside the
// certificate, so it is known even if all other copies are lost. Nil: the Secret does not have it, or has another issuer.
func Signer(secret *corev1.Secret, issuer string) []byte {
	by := secret.Annotations
	c := first(secret.Data[corev1.TLSCertKey])
	if c == nil || by["cert-manager.io/issuer-name"] != issuer || by["cert-manager.io/issuer-kind"] != certmanager.IssuerKind {
		return nil
	}
	for _, block := range slices.Concat(certificates(secret.Data[corev1.TLSCertKey])[1:], certificates(secret.Data["ca.crt"])) {
		if authority, err := x509.ParseCertificate(block.Bytes); err == nil && c.CheckSignatureFrom(authority) == nil {
			return pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		}
	}
	return nil
}

// TrustedBy reports whether CAs signed a certificate, directly or through its chain. It ignores expiry. It returns true if a certificate
// cannot be parsed.
func TrustedBy(chain, authorities []byte) bool {
	var roots []*x509.Certificate
	for _, block := range certificates(authorities) {
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return true
		}
		roots = append(roots, root)
	}
	var before *x509.Certificate
	for _, block := range certificates(chain) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return true
		}
		if before != nil && before.CheckSignatureFrom(c) != nil {
			return false
		}
		if slices.ContainsFunc(roots, func(root *x509.Certificate) bool { return c.Equal(root) || c.CheckSignatureFrom(root) == nil }) {
			return true
		}
		before = c
	}
	return before == nil
}

func first(chain []byte) *x509.Certificate {
	blocks := certificates(chain)
	if len(blocks) == 0 {
		return nil
	}
	c, err := x509.ParseCertificate(blocks[0].Bytes)
	if err != nil {
		return nil
	}
	return c
}

func certificates(content []byte) []*pem.Block {
	var blocks []*pem.Block
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			blocks = append(blocks, block)
		}
	}
	return blocks
}

// key returns the public key of a certificate, or the content of one that cannot be parsed.
func key(block *pem.Block) string {
	if c, err := x509.ParseCertificate(block.Bytes); err == nil {
		return string(c.RawSubjectPublicKeyInfo)
	}
	return string(block.Bytes)
}
