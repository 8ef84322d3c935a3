package options

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/featuregate"
)

func TestFlagsOfUpstreamsOperatorAreAccepted(t *testing.T) {
	all := flags(New())
	given := []string{
		"--root-ca-file=a", "--client-ca-file=a", "--requestheader-client-ca-file=a", "--requestheader-allowed-names=a,b",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--tls-private-key-file=a", "--tls-cert-file=a", "--service-account-key-file=a",
		"--service-account-key-file=b", "--service-account-private-key-file=a", "--service-account-lookup=false", "--shard-client-key-file=a",
		"--shard-client-cert-file=a", "--shard-base-url=a", "--shard-external-url=a", "--logical-cluster-admin-kubeconfig=a",
		"--external-logical-cluster-admin-kubeconfig=a", "--batteries-included=workspace-types", "--root-directory=",
		"--enable-leader-election=true", "--logging-format=json", "--shard-name=a", "--external-hostname=a",
		"--root-shard-kubeconfig-file=a", "--cache-kubeconfig=a", "--mount-proxy-client-cert-file=a", "--mount-proxy-client-key-file=a",
		"--run-virtual-workspaces=false", "--shard-virtual-workspace-url=a", "--shard-virtual-workspace-ca-file=a", "--etcd-servers=a,b",
		"--etcd-prefix=a", "--etcd-certfile=a", "--etcd-keyfile=a", "--etcd-cafile=a", "--audit-policy-file=a",
		"--audit-webhook-config-file=a", "--authorization-webhook-config-file=a", "--authorization-webhook-version=v1",
		"--authorization-webhook-cache-authorized-ttl=1s", "--authorization-webhook-cache-unauthorized-ttl=1s",
		"--authorization-always-allow-paths=/a", "--oidc-issuer-url=a", "--oidc-client-id=a", "--oidc-groups-claim=a", "--oidc-username-claim=a",
		"--oidc-username-prefix=a", "--oidc-groups-prefix=a", "--oidc-ca-file=a", "--authentication-token-webhook-cache-ttl=1s",
		"--authentication-token-webhook-version=v1", "--authentication-token-webhook-config-file=a", "--token-auth-file=a",
	}
	if err := all.Parse(given); err != nil {
		t.Fatal(err)
	}
	warnings := New().Warnings(all, featuregate.NewFeatureGate())
	want := []string{
		"--external-logical-cluster-admin-kubeconfig is not used", "--logical-cluster-admin-kubeconfig is not used",
		"--shard-virtual-workspace-ca-file is not used",
	}
	if !slices.EqualFunc(warnings, want, strings.Contains) {
		t.Errorf("got the warnings %q", warnings)
	}
}

func TestFlagsOfUpstreamThatAreNotAcceptedSayWhatToDo(t *testing.T) {
	for name, reason := range replaced {
		for _, given := range [][]string{{"--" + name + "=a"}, {"--" + name}} {
			if err := flags(New()).Parse(given); err == nil || !strings.Contains(err.Error(), reason) {
				t.Errorf("%q: got %v", given, err)
			}
		}
	}
	if err := flags(NewVirtualWorkspaces()).Parse([]string{"--kubeconfig=a"}); err == nil || !strings.Contains(err.Error(), "--etcd-servers") {
		t.Errorf("kcp virtual-workspaces --kubeconfig: got %v", err)
	}
	if err := flags(New()).Parse([]string{"--kubeconfig=a"}); err == nil || !strings.Contains(err.Error(), "unknown flag") {
		t.Errorf("kcp start --kubeconfig: got %v", err)
	}
}
