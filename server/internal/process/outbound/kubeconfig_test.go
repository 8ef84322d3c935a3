package outbound

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const validKubeconfig = `
clusters: [{name: kcp, cluster: {server: "https://kcp.example.com:6443", certificate-authority: ca.crt}}]
contexts: [{name: kcp, context: {cluster: kcp, user: shard}}]
users: [{name: shard, user: {token: secret}}]
current-context: kcp
`

func TestErrorsOfKubeconfigsHaveThePathOnce(t *testing.T) {
	for name, c := range map[string]struct{ old, replacement, want string }{
		"a syntax error":          {"current-context: kcp", "current-context: \"kcp\n", "yaml: line 7"},
		"an unknown context":      {"current-context: kcp", "current-context: other", "invalid configuration"},
		"a missing certificate":   {"token: secret", "client-certificate: absent.crt, client-key: absent.key", "absent.crt"},
		"a field of another type": {"token: secret", "token: {}", "token"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "shard.kubeconfig")
		if err := os.WriteFile(filepath.Join(dir, "ca.crt"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(validKubeconfig, c.old, c.replacement, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Kubeconfig(file)
		if err == nil || !strings.HasPrefix(err.Error(), file+": ") || strings.Count(err.Error(), file) != 1 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "absent.kubeconfig")
	if _, err := Kubeconfig(file); err == nil || err.Error() != file+": no such file or directory" {
		t.Errorf("no file: got %v", err)
	}
}

func TestTheFilesOfAKubeconfigAreBesideIt(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "shard.kubeconfig")
	for name, text := range map[string]string{file: validKubeconfig, filepath.Join(dir, "ca.crt"): ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Kubeconfig(file)
	if err != nil || got.Host != "https://kcp.example.com:6443" || got.BearerToken != "secret" || got.CAFile != filepath.Join(dir, "ca.crt") {
		t.Errorf("got %+v, %v", got, err)
	}
}
