package pki_test

import (
	"slices"
	"testing"

	"github.com/kcplane/kcp/operator/operatortest"
	"github.com/kcplane/kcp/operator/pki"
)

func TestAnAuthorityIsTrustedBesideThoseWithOtherKeysBefore(t *testing.T) {
	one, two, root := operatortest.NewKey(t), operatortest.NewKey(t), operatortest.NewKey(t)
	first, renewed, second := operatortest.Certificate(t, "ca", one, root), operatortest.Certificate(t, "ca", one, root), operatortest.Certificate(t, "ca", two, root)
	chain := func(pem ...[]byte) []byte { return slices.Concat(pem...) }
	for _, test := range []struct {
		name                    string
		authority, before, want []byte
		former                  int
	}{
		{"the first one, without who vouches for it", chain(first, operatortest.Certificate(t, "root", root, root)), nil, first, 0},
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
	first, renewed, second := operatortest.Certificate(t, "by", one, one), operatortest.Certificate(t, "by", one, one), operatortest.Certificate(t, "by", two, two)
	signed := operatortest.Certificate(t, "leaf", leaf, one)
	if !pki.SignedBy(signed, first) || !pki.SignedBy(signed, renewed) || pki.SignedBy(signed, second) {
		t.Error("another authority is taken for the one that has signed")
	}
	again, other := operatortest.Certificate(t, "leaf", operatortest.NewKey(t), one), operatortest.Certificate(t, "leaf", leaf, two)
	if key := string(pki.AuthorityKey(signed)); key == "" || key != string(pki.AuthorityKey(again)) || key == string(pki.AuthorityKey(other)) {
		t.Error("the key of another authority is taken for that of the one that has signed")
	}
}
