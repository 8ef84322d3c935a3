package peers_test

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
)

// bundle are authorities that can be replaced.
type bundle struct{ options x509.VerifyOptions }

func (b *bundle) VerifyOptions() (x509.VerifyOptions, bool) { return b.options, b.options.Roots != nil }

func bundleOf(authority *peerstest.Authority) *bundle {
	options, _ := authority.VerifyOptions()
	return &bundle{options}
}

func presented(c tls.Certificate) []*x509.Certificate { return []*x509.Certificate{c.Leaf} }

func TestAVerifiedCertificateIsValidUntilItExpiresOrItsAuthorityIsReplaced(t *testing.T) {
	authority, other := peerstest.NewAuthority(t), peerstest.NewAuthority(t)
	trusted, clock := bundleOf(authority), testclock.NewFakeClock(time.Now())
	v := peers.NewVerifier(trusted, clock)
	certificate := presented(authority.Peer(t, peers.Proxy, "front"))
	for range 2 {
		if identity, err := v.Identify(certificate); err != nil || identity.Name != "front" {
			t.Fatalf("got %v, %v", identity, err)
		}
	}
	for name, refused := range map[string][]*x509.Certificate{
		"no certificate": nil, "one of another authority": presented(other.Peer(t, peers.Proxy, "front")),
	} {
		for range 2 { // what is refused is not remembered as valid
			if v.Verify(refused) == nil {
				t.Errorf("%s is valid", name)
			}
		}
	}
	clock.SetTime(certificate[0].NotAfter.Add(time.Second))
	if v.Verify(certificate) == nil {
		t.Error("a certificate is valid after its end")
	}
	clock.SetTime(time.Now())
	if err := v.Verify(certificate); err != nil {
		t.Fatal(err)
	}
	trusted.options = bundleOf(other).options
	if v.Verify(certificate) == nil {
		t.Error("a certificate is valid after its authority was replaced")
	}
	trusted.options = x509.VerifyOptions{}
	if v.Verify(certificate) == nil {
		t.Error("a certificate is valid without authorities")
	}
}

func TestARememberedCertificateEndsInTheMinuteOfItsVerification(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	certificate := presented(authority.Peer(t, peers.Proxy, "front"))
	clock := testclock.NewFakeClock(certificate[0].NotAfter.Add(-time.Second))
	v := peers.NewVerifier(bundleOf(authority), clock)
	if err := v.Verify(certificate); err != nil {
		t.Fatal(err)
	}
	clock.Step(2 * time.Second)
	if v.Verify(certificate) == nil {
		t.Error("a certificate is valid after its end, because it was verified before")
	}
}

func TestOnlyCertificatesThatAreStillValidAreRemembered(t *testing.T) {
	authority, other := peerstest.NewAuthority(t), peerstest.NewAuthority(t)
	trusted, clock := bundleOf(authority), testclock.NewFakeClock(time.Now())
	v := peers.NewVerifier(trusted, clock)
	valid, refused := presented(authority.Peer(t, peers.Proxy, "front")), presented(other.Peer(t, peers.Proxy, "front"))
	if v.Remembers(nil) || v.Remembers(valid) {
		t.Error("a certificate is remembered before it was verified")
	}
	if v.Verify(refused) == nil || v.Remembers(refused) {
		t.Error("a certificate of another authority is remembered")
	}
	remember := func() {
		t.Helper()
		if err := v.Verify(valid); err != nil || !v.Remembers(valid) {
			t.Fatal("a valid certificate is not remembered", err)
		}
	}
	remember()
	clock.Step(2 * time.Minute)
	if v.Remembers(valid) {
		t.Error("a certificate is remembered for longer than a minute")
	}
	remember()
	trusted.options = bundleOf(other).options
	if v.Remembers(valid) {
		t.Error("a certificate is remembered after its authority was replaced")
	}
	trusted.options = bundleOf(authority).options
	clock.SetTime(valid[0].NotAfter.Add(-time.Second))
	remember()
	clock.Step(2 * time.Second)
	if v.Remembers(valid) {
		t.Error("a certificate is remembered after its end")
	}
}

func BenchmarkVerify(b *testing.B) {
	authority := peerstest.NewAuthority(b)
	certificate := presented(authority.Peer(b, peers.Proxy, "front"))
	for name, of := range map[string]func() *peers.Verifier{
		"remembered": func() func() *peers.Verifier {
			v := peers.NewVerifier(bundleOf(authority), testclock.NewFakeClock(time.Now()))
			return func() *peers.Verifier { return v }
		}(),
		"verified": func() *peers.Verifier {
			return peers.NewVerifier(bundleOf(authority), testclock.NewFakeClock(time.Now()))
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := of().Verify(certificate); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
