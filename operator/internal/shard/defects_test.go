package shard_test

import (
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"

	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// These tests are for known defects of other operators of kcp, with all fields of a spec. D… are their numbers in the list of defects.

func everything(t *testing.T) (*shard.Shard, *workload.Component) {
	t.Helper()
	s := described(read(t, "testdata/everything.yaml"))
	return s, shard.Component(s)
}

// D3: a key has a default, also in its path.
// D14: flags are not quoted, because no shell removes the quotes.
func TestFlagsAreComplete(t *testing.T) {
	_, c := everything(t)
	for _, arg := range c.Args {
		if strings.HasSuffix(arg, "/") || strings.HasSuffix(arg, "=") || strings.ContainsAny(arg, `"'`) {
			t.Errorf("the flag %s is wrong", arg)
		}
	}
	if !slices.Contains(c.Args, "--oidc-ca-file=/etc/kcp/tls/oidc/ca.crt") {
		t.Errorf("there is no file of an OIDC authority in %v", c.Args)
	}
}

// The client certificate of a server for mounts authenticates the server, not a user. Only proxies may authenticate users with headers.
func TestOnlyProxiesAuthenticateUsersWithHeaders(t *testing.T) {
	_, c := everything(t)
	if !slices.Contains(c.Args, "--requestheader-allowed-names=kcp-front-proxy,kcp-root-shard-proxy") {
		t.Errorf("other clients may, too: %v", c.Args)
	}
}

// D11: the names of servers are in the domain of the cluster.
func TestCertificatesHaveTheNamesThatClientsUse(t *testing.T) {
	s, _ := everything(t)
	s.Spec.ShardBaseURL, s.Templates = "", nil
	host := strings.TrimSuffix(strings.TrimPrefix(s.BaseURL(), "https://"), ":6443")
	for _, leaf := range shard.Leaves(s) {
		if leaf.GetName() == s.Leaf("server") && !slices.Contains(leaf.(*certmanager.Certificate).Spec.DNSNames, host) {
			t.Errorf("the server's certificate has no name %s", host)
		}
	}
	if !strings.HasSuffix(host, ".svc.example.local") {
		t.Errorf("the name of the server is %s", host)
	}
}

// D18: pods have only the keys that they use, and not those of CAs or of other components.
func TestPodsHaveOnlyTheKeysThatTheyUse(t *testing.T) {
	s, c := everything(t)
	used := []string{s.Leaf("server"), s.ServiceAccountKeys(), "etcd-client"}
	for _, f := range c.Files {
		if f.Secret != "" && slices.Contains(used, f.Secret) != slices.Contains(f.Keys, "tls.key") || len(f.Keys) == 0 {
			t.Errorf("of Secret %s%s the keys %v are mounted", f.Secret, f.ConfigMap, f.Keys)
		}
	}
}
