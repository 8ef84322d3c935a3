package sharding

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// The tests of this file stop processes of the shared installation, and start them again. They are not parallel, and therefore run while no
// other test does.

// settled creates a workspace on a shard, with traffic of a tenant in it.
func settled(t *testing.T, s *sharded.Process) *traffic {
	t.Helper()
	_, cluster := workspaceOn(t, s)
	cluster.Grant(t, kcptest.Alice, "edit")
	return begin(t, cluster, kcptest.Alice)
}

// stop stops a process until the test ends, or until the returned function starts it again.
func stop(t *testing.T, p *sharded.Process) (start func()) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	stopped := true
	start = func() {
		t.Helper()
		if stopped {
			stopped = false
			if err := p.Start(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(start)
	return start
}

func TestWorkspacesAreServedWithoutTheRootShard(t *testing.T) {
	one, two := shard(t, "shard-1"), shard(t, "shard-2")
	undisturbed, restarted := settled(t, one), settled(t, two)
	startRoot := stop(t, installation.Root())
	undisturbed.proceed()
	startTwo := stop(t, two)
	startTwo()
	restarted.proceed()
	undisturbed.undisturbed("root shard down")
	gap, failures := restarted.finish()
	t.Logf("restart of a shard while the root shard is down: %d objects written, longest gap %s, %d failed requests", len(restarted.acknowledged),
		gap, len(failures))
	startRoot()
}

func TestOtherShardsAreNotAffectedByTheLossOfAShard(t *testing.T) {
	one, two := shard(t, "shard-1"), shard(t, "shard-2")
	undisturbed, lost := settled(t, one), settled(t, two)
	rootTraffic := settled(t, installation.Root())
	two.Kill()
	undisturbed.proceed()
	rootTraffic.proceed()
	if err := two.Start(); err != nil {
		t.Fatal(err)
	}
	gap, failures := lost.finish()
	t.Logf("a shard is killed and started: %d objects written, longest gap %s, %d failed requests", len(lost.acknowledged), gap, len(failures))
	undisturbed.undisturbed("another shard down")
	rootTraffic.undisturbed("another shard down, in root")
}
