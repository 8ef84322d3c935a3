package compatibility

import (
	"os"
	"os/exec"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// javascriptClient installs the client with npm and runs the program that uses it.
func javascriptClient(t *testing.T, w workspace) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(root+"/test/compatibility/javascript")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"npm", "ci", "--no-audit", "--no-fund"}, {"node", "main.mjs"}} {
		command := exec.CommandContext(kcptest.Context(t), args[0], args[1:]...)
		command.Dir, command.Env = dir, append(os.Environ(), "KUBECONFIG="+w.kubeconfig)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}
