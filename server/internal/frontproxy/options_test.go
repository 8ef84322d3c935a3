package frontproxy

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/version"
	cliflag "k8s.io/component-base/cli/flag"
)

// parse parses flags as the command does.
func parse(flags ...string) (*Options, error) {
	o, all := NewOptions(), pflag.NewFlagSet("front-proxy", pflag.ContinueOnError)
	var sets cliflag.NamedFlagSets
	o.AddFlags(&sets)
	for _, fs := range sets.FlagSets {
		all.AddFlagSet(fs)
	}
	return o, all.Parse(flags)
}

// The operator of upstream starts front proxies with these flags.
func TestFlagsOfTheOperatorOfUpstreamAreAccepted(t *testing.T) {
	directory := t.TempDir()
	policy := filepath.Join(directory, "policy.yaml")
	o, err := parse("--secure-port=6443", "--root-directory="+directory, "--root-kubeconfig=/etc/kcp-front-proxy/kubeconfig/kubeconfig",
		"--shards-kubeconfig=/etc/kcp-front-proxy-kubeconfig/kubeconfig", "--tls-cert-file=/etc/tls.crt", "--tls-private-key-file=/etc/tls.key",
		"--client-ca-file=/etc/ca.crt", "--mapping-file=/etc/path-mapping.yaml", "--service-account-key-file=/etc/sa.crt",
		"--service-account-lookup=false", "--authentication-drop-groups=system:kcp:logical-cluster-admin,secret:*",
		"--authentication-pass-on-groups=system:authenticated", "--oidc-issuer-url=https://dex.example.com", "--oidc-client-id=kcp",
		"--oidc-groups-claim=groups", "--oidc-username-claim=email", "--oidc-username-prefix=oidc:", "--oidc-groups-prefix=oidc:",
		"--authentication-token-webhook-config-file=/etc/webhook", "--authentication-token-webhook-cache-ttl=30s",
		"--authentication-token-webhook-version=v1", "--token-auth-file=/etc/tokens.csv",
		"--cors-allowed-origins=https://console.example.com", "--profiler-address=localhost:6060", "--requestheader-client-ca-file=/etc/rh.crt",
		"--requestheader-allowed-names=outer", "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--audit-policy-file="+policy, "--audit-log-path=-", "--audit-log-maxage=30",
		"--audit-webhook-config-file=/etc/audit", "--audit-webhook-mode=batch", "--bind-address=0.0.0.0", "--v=2")
	if err == nil {
		err = o.complete()
	}
	if err != nil {
		t.Fatal(err)
	}
	if o.Authentication.ServiceAccounts != nil {
		t.Error("the front proxy verifies tokens of service accounts itself")
	}
}

func TestOptionsThatLackAnotherAreRefused(t *testing.T) {
	for flags, want := range map[string]string{
		"--audit-log-path=-":               "--audit-policy-file is required",
		"--requestheader-client-ca-file=a": "--requestheader-allowed-names is required",
		"--max-open-requests=-1":           "--max-open-requests is too small",
	} {
		o, err := parse(strings.Fields(flags)...)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", flags, err, want)
		}
	}
}

func TestTheProxyAnswersVersion(t *testing.T) {
	f := newWorld(t).start(func(o *Options) { o.Version = &version.Info{GitVersion: "v1.99.0+kcp"} })
	response, err := f.client("").Get(f.url + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var got version.Info
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || response.StatusCode != http.StatusOK || got.GitVersion != "v1.99.0+kcp" {
		t.Errorf("got %s %+v, %v", response.Status, got, err)
	}
}
