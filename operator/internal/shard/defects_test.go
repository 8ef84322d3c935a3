package shard_test

import (
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"

	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// What other operators of kcp are known to do wrong, with everything that a spec can ask for. The numbers D… are those of the
// list of these defects.

func everything(t *testing.T) (*shard.Shard, *workload.Component) {
	t.Helper()
	s := described(read(t, "testdata/everything.yaml"))
	return s, shard.Component(s)
}

// D3: a key that is not named has a default, in the path as well.
// D14: flags are not quoted, as no shell takes the quotes away.
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

// The certificate that a server shows to where mounts lead tells which server asks, and not which user: whoever may say by
// headers who a user is must be a proxy.
func TestProxiesAloneSayWhoAUserIs(t *testing.T) {
	_, c := everything(t)
	if !slices.Contains(c.Args, "--requestheader-allowed-names=kcp-front-proxy,kcp-root-shard-proxy") {
		t.Errorf("others may, too: %v", c.Args)
	}
}

// D11: servers are called by names in the domain of the cluster.
func TestCertificatesAreMadeOutToTheNamesThatClientsUse(t *testing.T) {
	s, _ := everything(t)
	s.Spec.ShardBaseURL, s.Templates = "", nil
	host := strings.TrimSuffix(strings.TrimPrefix(s.BaseURL(), "https://"), ":6443")
	for _, leaf := range shard.Leaves(s) {
		if leaf.GetName() == s.Leaf("server") && !slices.Contains(leaf.(*certmanager.Certificate).Spec.DNSNames, host) {
			t.Errorf("the server's certificate is not made out to %s", host)
		}
	}
	if !strings.HasSuffix(host, ".svc.example.local") {
		t.Errorf("the server is called %s", host)
	}
}

// D18: pods have the keys that they use, and no others: not those of authorities, nor of other components.
func TestPodsHaveNoKeysThatTheyDoNotUse(t *testing.T) {
	s, c := everything(t)
	used := []string{s.Leaf("server"), s.ServiceAccountKeys(), "etcd-client"}
	for _, f := range c.Files {
		if f.Secret != "" && slices.Contains(used, f.Secret) != slices.Contains(f.Keys, "tls.key") || len(f.Keys) == 0 {
			t.Errorf("of Secret %s%s the keys %v are mounted", f.Secret, f.ConfigMap, f.Keys)
		}
	}
}
