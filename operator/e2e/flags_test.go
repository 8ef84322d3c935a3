package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// D19: the golden files have every flag that the operator can pass to kcp.
func TestKCPHasTheFlagsThatItIsStartedWith(t *testing.T) {
	kcp, err := kcptest.Binary("kcp")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		command, golden string
		flags           int
	}{
		{"start", "shard/testdata/everything.workload.golden", 40},
		{"start", "shard/testdata/further.workload.golden", 25},
		{"front-proxy", "frontproxy/testdata/everything.golden", 14},
		{"virtual-workspaces", "virtualworkspace/testdata/smallest.golden", 25},
		{"cache-server", "cacheserver/testdata/stored.golden", 10},
	} {
		help, err := exec.CommandContext(t.Context(), kcp, test.command, "--help").CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		built, err := os.ReadFile(filepath.Join(root, "operator/internal", test.golden))
		if err != nil {
			t.Fatal(err)
		}
		flags := regexp.MustCompile(`(?m)^ +- '?(--[a-z-]+)=`).FindAllSubmatch(built, -1)
		if len(flags) < test.flags {
			t.Fatalf("%s has %d flags", test.golden, len(flags))
		}
		for _, flag := range flags {
			if !strings.Contains(string(help), " "+string(flag[1])+" ") {
				t.Errorf("kcp %s has no flag %s", test.command, flag[1])
			}
		}
	}
}
