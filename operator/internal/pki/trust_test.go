package pki_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/pki"
)

func TestACAIsTrustedBesideFormerOnesWithOtherKeys(t *testing.T) {
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

func TestTheSignerOfACertificateIsFound(t *testing.T) {
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

func TestAFormerCAIsReadOnlyFromSecretsOfItsIssuer(t *testing.T) {
	one, two := operatortest.NewKey(t), operatortest.NewKey(t)
	leaf, first, second := operatortest.Certificate(t, "leaf", operatortest.NewKey(t), one), operatortest.Certificate(t, "by", one, one), operatortest.Certificate(t, "by", two, two)
	for _, test := range []struct {
		name, issuer, kind string
		chain, root        []byte
		want               []byte
	}{
		{"in ca.crt", "ca", "Issuer", leaf, first, first},
		{"in the chain", "ca", "Issuer", slices.Concat(leaf, first), second, first},
		{"another authority", "ca", "Issuer", leaf, second, nil},
		{"another issuer", "company", "Issuer", leaf, first, nil},
		{"another kind of issuer", "ca", "ClusterIssuer", leaf, first, nil},
		{"no certificate", "ca", "Issuer", nil, first, nil},
	} {
		secret := &corev1.Secret{Data: map[string][]byte{"tls.crt": test.chain, "ca.crt": test.root}}
		secret.Annotations = map[string]string{"cert-manager.io/issuer-name": test.issuer, "cert-manager.io/issuer-kind": test.kind}
		if got := pki.Signer(secret, "ca"); string(got) != string(test.want) {
			t.Errorf("%s: got\n%s", test.name, got)
		}
	}
}

func TestACertificateIsTrustedThroughItsChain(t *testing.T) {
	root, middle, other := operatortest.NewKey(t), operatortest.NewKey(t), operatortest.NewKey(t)
	leaf, between := operatortest.Certificate(t, "leaf", operatortest.NewKey(t), middle), operatortest.Certificate(t, "by", middle, root)
	top, foreign := operatortest.Certificate(t, "by", root, root), operatortest.Certificate(t, "by", other, other)
	for name, test := range map[string]struct {
		chain, authorities []byte
		want               bool
	}{
		"the authority":             {leaf, between, true},
		"one of several":            {leaf, slices.Concat(foreign, between), true},
		"who vouches for it":        {slices.Concat(leaf, between), top, true},
		"no chain to who does":      {leaf, top, false},
		"a chain of another":        {slices.Concat(leaf, foreign), foreign, false},
		"another authority":         {slices.Concat(leaf, between), foreign, false},
		"what cannot be read":       {operatortest.PEM("x"), foreign, true},
		"no certificate to look at": {nil, foreign, true},
	} {
		if got := pki.TrustedBy(test.chain, test.authorities); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
