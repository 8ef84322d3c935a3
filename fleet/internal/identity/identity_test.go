package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestOnlyTheAgentOfAClusterIsItsAgent(t *testing.T) {
	for name, test := range map[string]struct {
		user user.DefaultInfo
		want bool
	}{
		"the agent":                 {user.DefaultInfo{Name: "fleet:cluster:east", Groups: []string{Group, "fleet:key:k"}}, true},
		"an agent with another key": {user.DefaultInfo{Name: "fleet:cluster:east", Groups: []string{Group, "fleet:key:former"}}, false},
		"an agent without a key":    {user.DefaultInfo{Name: "fleet:cluster:east", Groups: []string{Group}}, false},
		"another agent":             {user.DefaultInfo{Name: "fleet:cluster:west", Groups: []string{Group, "fleet:key:k"}}, false},
		"a user of that name":       {user.DefaultInfo{Name: "fleet:cluster:east", Groups: []string{"fleet:key:k"}}, false},
		"a service account":         {user.DefaultInfo{Name: "system:serviceaccount:kcp-fleet:east", Groups: []string{Group, "fleet:key:k"}}, false},
		"an agent of no known":      {user.DefaultInfo{Name: "fleet:cluster:", Groups: []string{Group, "fleet:key:k"}}, false},
	} {
		if got := IsAgent(&test.user, "east", "k"); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
	if IsAgent(&user.DefaultInfo{Name: "fleet:cluster:east", Groups: []string{Group, "fleet:key:"}}, "east", "") {
		t.Error("without an approved key, a user is the agent")
	}
	account := func(cluster ...string) user.Info {
		return &user.DefaultInfo{Name: "system:serviceaccount:kcp-fleet:east", Extra: map[string][]string{logicalcluster.UserExtraKey: cluster}}
	}
	if !IsBootstrap(account("provider"), "provider", "east") {
		t.Error("the service account of the provider is refused")
	}
	for _, other := range []user.Info{account("tenant"), account(), account("provider", "tenant"), account("tenant", "provider")} {
		if IsBootstrap(other, "provider", "east") {
			t.Errorf("%v is accepted", other)
		}
	}
}

func TestCertificatesNameTheClusterAndNotWhatTheRequestAsksFor(t *testing.T) {
	now := time.Now()
	certificate, key, err := NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ParseAuthority(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := NewRequest(private)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := authority.Issue("east", "k", string(request), now)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseCertificate([]byte(issued))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	if _, err := parsed.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if parsed.Subject.String() != "CN=fleet:cluster:east,O=fleet:key:k+O=fleet:agents" || parsed.IsCA {
		t.Errorf("the certificate is for %s", parsed.Subject)
	}
	if !IsFor(issued, string(request)) {
		t.Error("the certificate is not for the key of its request")
	}
	if _, err := authority.Issue("east", "k", "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----", now); err == nil {
		t.Error("an invalid request is accepted")
	}
}
