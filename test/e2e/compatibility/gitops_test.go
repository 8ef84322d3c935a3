package compatibility

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// gitopsEngine runs the agent of Argo CD's engine with a repository: it applies committed manifests, and prunes removed ones.
func gitopsEngine(t *testing.T, w workspace) {
	repository := t.TempDir()
	commit := func(files map[string]string) {
		t.Helper()
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(repository, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{
			{"init", "--quiet"}, {"add", "--all"}, {"-c", "user.name=shop", "-c", "user.email=shop@example.com", "commit", "--quiet", "--message=prices"},
		} {
			git := exec.CommandContext(kcptest.Context(t), "git", args...)
			git.Dir = repository
			if out, err := git.CombinedOutput(); err != nil {
				t.Fatalf("git %v: %v\n%s", args, err, out)
			}
		}
	}
	commit(map[string]string{"apple.yaml": configMap("apple", "1"), "pear.yaml": configMap("pear", "2")})
	_, port, err := net.SplitHostPort(kcptest.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	w.start(t, nil, "gitops-agent", repository, "--default-namespace=default", "--resync-seconds=1", "--port="+port)
	awaitPrice(t, w, "apple", "1")
	awaitPrice(t, w, "pear", "2")
	if err := os.Remove(filepath.Join(repository, "pear.yaml")); err != nil {
		t.Fatal(err)
	}
	commit(map[string]string{"apple.yaml": configMap("apple", "3")})
	awaitPrice(t, w, "apple", "3")
	awaitGone(t, w, "pear")
	w.Kubectl(t, "patch", "configmap", "apple", "--type=merge", `--patch={"data":{"price":"100"}}`)
	awaitPrice(t, w, "apple", "3")
}
