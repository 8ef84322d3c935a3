package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
)

// Trusted returns, in PEM, whom to trust while an authority has one key after another: the authority of a certificate, without
// those that vouch for it, and of those that were trusted before all that have other keys. A certificate that is renewed with its
// key takes the place of the one before. The number is that of the others.
func Trusted(authority, before []byte) (all []byte, former int) {
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
	for _, block := range certificates(before) {
		add(block)
	}
	return trusted.Bytes(), len(seen) - current
}

// Keys returns what tells the keys of certificates from others.
func Keys(pem []byte) []byte {
	var keys []byte
	for _, block := range certificates(pem) {
		keys = append(keys, key(block)...)
	}
	return keys
}

// AuthorityKey returns what tells the key that has signed a certificate from others, or nothing if the certificate does not say.
func AuthorityKey(certificate []byte) []byte {
	if c := first(certificate); c != nil {
		return c.AuthorityKeyId
	}
	return nil
}

// SignedBy reports whether an authority has signed a certificate. It is taken to have signed what cannot be read.
func SignedBy(certificate, authority []byte) bool {
	c, by := first(certificate), first(authority)
	return c == nil || by == nil || c.CheckSignatureFrom(by) == nil
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

// key is the public key of a certificate. One that cannot be parsed stands for itself.
func key(block *pem.Block) string {
	if c, err := x509.ParseCertificate(block.Bytes); err == nil {
		return string(c.RawSubjectPublicKeyInfo)
	}
	return string(block.Bytes)
}
