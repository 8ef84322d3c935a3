package frontproxy

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
)

// authority can be replaced.
type authority struct{ options stdx509.VerifyOptions }

func (a *authority) VerifyOptions() (stdx509.VerifyOptions, bool) { return a.options, true }

// replace trusts another authority, and no other one.
func (a *authority) replace(by *peerstest.Authority) {
	a.options, _ = by.VerifyOptions()
	a.options.KeyUsages = []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}
}

// counted are users by their certificates, with the number of those that were verified.
type counted struct {
	users
	trusted  authority
	clock    *testclock.FakeClock
	verified int
}

func newCounted(trusted *peerstest.Authority, headers *authenticatorfactory.RequestHeaderConfig) *counted {
	c := &counted{clock: testclock.NewFakeClock(time.Now())}
	c.trusted.replace(trusted)
	upstream := group.NewAuthenticatedGroupAdder(x509.NewDynamic(c.trusted.VerifyOptions, x509.CommonNameUserConversion))
	c.users = newUsers(authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		c.verified++
		return upstream.AuthenticateRequest(r)
	}), &c.trusted, headers, c.clock)
	return c
}

// with returns a request with a client certificate and headers.
func with(certificate *stdx509.Certificate, header http.Header) *http.Request {
	r := &http.Request{Method: http.MethodGet, RemoteAddr: "192.0.2.1:1", Header: header, TLS: &tls.ConnectionState{}}
	if certificate != nil {
		r.TLS.PeerCertificates = []*stdx509.Certificate{certificate}
	}
	return r
}

func certificateOf(t *testing.T, a *peerstest.Authority, name string, groups ...string) *stdx509.Certificate {
	return a.Signed(t, &stdx509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: groups}, ExtKeyUsage: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth},
	}).Leaf
}

func TestTheCertificateOfAUserIsVerifiedOnceAMinute(t *testing.T) {
	trusted, other := peerstest.NewAuthority(t), peerstest.NewAuthority(t)
	c := newCounted(trusted, nil)
	alice := certificateOf(t, trusted, "alice", "team-a", "team-b")
	authenticate := func(verified int) user.Info {
		t.Helper()
		got, err := callerOf(with(alice, http.Header{}), c.users)
		if err != nil || got.client.Key != "user:alice" || c.verified != verified {
			t.Fatalf("got %+v, %v, and %d verified certificates, want %d", got, err, c.verified, verified)
		}
		return got.user
	}
	first := authenticate(1)
	if diff := cmp.Diff(first, authenticate(1)); diff != "" {
		t.Errorf("the second request has another user: %s", diff)
	}
	c.clock.Step(61 * time.Second)
	authenticate(2)
	c.trusted.replace(other)
	if got, err := callerOf(with(alice, http.Header{}), c.users); err == nil {
		t.Errorf("after the authority was replaced, the certificate is that of %v", got.user)
	}
	c.trusted.replace(trusted)
	if c.clock.SetTime(alice.NotAfter.Add(-time.Second)); authenticate(4) == nil {
		t.Error("no user")
	}
	c.clock.Step(2 * time.Second)
	if authenticate(5); c.users.certificates.Remembers([]*stdx509.Certificate{alice}) {
		t.Error("a certificate is remembered after its end")
	}
}

func TestOnlyValidCertificatesOfUsersAreRemembered(t *testing.T) {
	trusted := peerstest.NewAuthority(t)
	for name, certificate := range map[string]*stdx509.Certificate{
		"none": nil, "of another authority": certificateOf(t, peerstest.NewAuthority(t), "alice"), "without a name": certificateOf(t, trusted, ""),
	} {
		c := newCounted(trusted, nil)
		for verified := 1; verified < 4; verified++ {
			if got, _ := callerOf(with(certificate, http.Header{}), c.users); got.user != nil || c.verified != verified {
				t.Errorf("%s: got %v after %d attempts, want %d", name, got.user, c.verified, verified)
			}
		}
	}
}

func TestARememberedCertificateAcceptsNoTokensOfTwoLogicalClusters(t *testing.T) {
	trusted := peerstest.NewAuthority(t)
	c, alice := newCounted(trusted, nil), certificateOf(t, trusted, "alice")
	if _, err := callerOf(with(alice, http.Header{}), c.users); err != nil {
		t.Fatal(err)
	}
	account := func(cluster string) string { return token(`{"kubernetes.io":{"clusterName":"` + cluster + `"}}`) }
	protocol := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(account("bbb")))
	header := http.Header{"Authorization": {"Bearer " + account("aaa")}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Protocol": {protocol}}
	if got, err := callerOf(with(alice, header), c.users); err == nil {
		t.Errorf("got %v", got.user)
	}
}

// The certificate of another proxy is the same for all of its users. Its headers say which one sends a request.
func TestNoCertificateIsRememberedIfHeadersDescribeUsers(t *testing.T) {
	trusted := peerstest.NewAuthority(t)
	c, gateway := newCounted(trusted, &authenticatorfactory.RequestHeaderConfig{}), certificateOf(t, trusted, "gateway")
	for verified := 1; verified < 4; verified++ {
		if got, err := callerOf(with(gateway, http.Header{}), c.users); err != nil || c.verified != verified {
			t.Errorf("got %+v, %v, and %d requests were authenticated, want %d", got, err, c.verified, verified)
		}
	}
}

func TestHeadersOfAnotherProxyPrecedeItsCertificate(t *testing.T) {
	w := newWorld(t)
	f := w.start(func(o *Options) {
		o.Authentication.RequestHeader.ClientCAFile = w.users.File
		o.Authentication.RequestHeader.UsernameHeaders = []string{"X-Remote-User"}
		o.Authentication.RequestHeader.AllowedNames = []string{"gateway"}
	})
	gateway := f.client("gateway")
	for _, name := range []string{"gateway", "bob"} {
		header := http.Header{}
		if name != "gateway" {
			header.Set("X-Remote-User", name)
		}
		got, response, status := f.ask(gateway, http.MethodGet, "/clusters/team0/api", header, nil)
		if got.Header.Get("X-Remote-User") != name {
			t.Errorf("%s: %s, %v, %v", name, response.Status, status.Message, got.Header)
		}
	}
}
