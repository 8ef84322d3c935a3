package hosttest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Follow runs the commands in a code block of a section of docs/operations.md, with pairs of words replaced, and returns the last line of
// the output.
func (n *Installation) Follow(t *testing.T, section string, number int, replace ...string) string {
	t.Helper()
	var found []kcptest.Block
	for _, block := range kcptest.Blocks(t, Root+"docs/operations.md") {
		if block.Section == section && block.Info == "sh" {
			found = append(found, block)
		}
	}
	if number >= len(found) {
		t.Fatalf("docs/operations.md has %d blocks of commands in the section %s", len(found), section)
	}
	config, err := clientcmd.LoadFromFile(n.host.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = n.Name
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.NewReplacer(replace...).Replace(found[number].Text))
	cmd.Dir, cmd.Env = t.TempDir(), kcptest.CommandAt(t, "kubectl", kubeconfig).WithPlugins(t).Environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the commands at line %d: %v\n%s", found[number].Line, err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
