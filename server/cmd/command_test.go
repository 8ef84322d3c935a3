package cmd

import "testing"

func TestTheNameOfTheProgramChoosesTheCommand(t *testing.T) {
	for name, want := range map[string]string{
		"/kcp": "kcp", "kcp": "kcp", "./other-name": "kcp", "/usr/bin/kcp-front-proxy": "kcp-front-proxy", "kcp-front-proxy": "kcp-front-proxy",
		"/bin/virtual-workspaces": "virtual-workspaces",
	} {
		if got := ForProgram(name); got.Name() != want {
			t.Errorf("%s: got the command %s, want %s", name, got.Name(), want)
		}
	}
	if found, _, err := New().Find([]string{"front-proxy"}); err != nil || found.Name() != "front-proxy" {
		t.Errorf("got %v, %v", found, err)
	}
}

// The operator of upstream starts a front proxy with these flags.
func TestTheFrontProxyAcceptsTheFlagsOfUpstreamsOperator(t *testing.T) {
	err := newFrontProxy().ParseFlags([]string{
		"--secure-port=6443", "--root-kubeconfig=/k", "--shards-kubeconfig=/k", "--tls-private-key-file=/tls.key", "--tls-cert-file=/tls.crt",
		"--mapping-file=/path-mapping.yaml", "--client-ca-file=/ca.crt", "--requestheader-client-ca-file=/ca.crt",
		"--requestheader-allowed-names=kcp-front-proxy,kcp-mounts-proxy", "--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		`--authentication-drop-groups="a,b"`, `--authentication-pass-on-groups="a,b"`, "-v=2", "--logging-format=json",
		"--oidc-issuer-url=https://issuer", "--oidc-client-id=x", "--oidc-groups-claim=groups", "--oidc-username-claim=sub", "--oidc-username-prefix=a:",
		"--oidc-groups-prefix=b:", "--oidc-ca-file=/ca.crt", "--authentication-token-webhook-cache-ttl=1m", "--authentication-token-webhook-version=v1",
		"--authentication-token-webhook-config-file=/kubeconfig", "--token-auth-file=/token.csv", "--service-account-lookup=false",
		"--service-account-key-file=/a", "--service-account-key-file=/b", "--authentication-config=/c", "--root-directory=", "--profiler-address=:6060",
		"--cors-allowed-origins=.*", "--feature-gates=AllAlpha=false",
	})
	if err != nil {
		t.Error(err)
	}
}
