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

// D19: the golden file has every flag that the operator can pass to kcp.
func TestKCPHasTheFlagsThatItIsStartedWith(t *testing.T) {
	kcp, err := kcptest.Binary("kcp")
	if err != nil {
		t.Fatal(err)
	}
	help, err := exec.CommandContext(t.Context(), kcp, "start", "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	built, err := os.ReadFile(filepath.Join(root, "operator/internal/shard/testdata/everything.workload.golden"))
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`(?m)^ +- (--[a-z-]+)=`).FindAllSubmatch(built, -1)
	if len(flags) < 40 {
		t.Fatalf("the golden file has %d flags", len(flags))
	}
	for _, flag := range flags {
		if !strings.Contains(string(help), " "+string(flag[1])+" ") {
			t.Errorf("kcp has no flag %s", flag[1])
		}
	}
}
