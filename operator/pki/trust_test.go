package pki_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/kcplane/kcp/operator/operatortest"
	"github.com/kcplane/kcp/operator/pki"
)

// certificate returns a certificate of a key, signed by another, in PEM.
func certificate(t *testing.T, name string, key *ecdsa.PrivateKey, by *ecdsa.PrivateKey) []byte {
	t.Helper()
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
	}
	self, err := x509.CreateCertificate(rand.Reader, template("by"), template("by"), by.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	parent, err := x509.ParseCertificate(self)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template(name), parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestAnAuthorityIsTrustedBesideThoseWithOtherKeysBefore(t *testing.T) {
	one, two, root := operatortest.NewKey(t), operatortest.NewKey(t), operatortest.NewKey(t)
	first, renewed, second := certificate(t, "ca", one, root), certificate(t, "ca", one, root), certificate(t, "ca", two, root)
	chain := func(pem ...[]byte) []byte { return slices.Concat(pem...) }
	for _, test := range []struct {
		name                    string
		authority, before, want []byte
		former                  int
	}{
		{"the first one, without who vouches for it", chain(first, certificate(t, "root", root, root)), nil, first, 0},
		{"the same again", first, first, first, 0},
		{"a new certificate with the key of before", renewed, first, renewed, 0},
		{"a new key", second, first, chain(second, first), 1},
		{"a new key, seen again", second, chain(second, first), chain(second, first), 1},
		{"the key of before again", first, chain(second, first), chain(first, second), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, former := pki.Trusted(test.authority, test.before)
			if string(got) != string(test.want) || former != test.former {
				t.Errorf("%d former ones, and trusted are\n%s", former, got)
			}
		})
	}
	if string(pki.Keys(first)) != string(pki.Keys(renewed)) || string(pki.Keys(first)) == string(pki.Keys(second)) {
		t.Error("keys are taken for others")
	}
}

func TestWhoHasSignedACertificateIsKnown(t *testing.T) {
	one, two, leaf := operatortest.NewKey(t), operatortest.NewKey(t), operatortest.NewKey(t)
	first, renewed, second := certificate(t, "by", one, one), certificate(t, "by", one, one), certificate(t, "by", two, two)
	signed := certificate(t, "leaf", leaf, one)
	if !pki.SignedBy(signed, first) || !pki.SignedBy(signed, renewed) || pki.SignedBy(signed, second) {
		t.Error("another authority is taken for the one that has signed")
	}
	again, other := certificate(t, "leaf", operatortest.NewKey(t), one), certificate(t, "leaf", leaf, two)
	if key := string(pki.AuthorityKey(signed)); key == "" || key != string(pki.AuthorityKey(again)) || key == string(pki.AuthorityKey(other)) {
		t.Error("the key of another authority is taken for that of the one that has signed")
	}
}
