package fleet

import (
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// TestShardedPods reads pods of a workspace on another shard than that of the fleet, through a front proxy. Two shards and the front proxy
// are processes of their own.
func TestShardedPods(t *testing.T) {
	f, flags := preparePods(t)
	options := sharded.Options{Shards: 1, Proxies: 1, ShardFlags: flags}
	options.Users, options.ProxyUsers = sharded.TestUsers()
	installation, err := sharded.Start(t.TempDir(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := installation.Stop(); err != nil {
			t.Error(err)
		}
	})
	f.server = installation.Proxies[0].Server()
	f.installPods(t, kcptest.On(sharded.Root, kcptest.Workspace("fleet", "", "")))
	w, other := f.workspaceOn(t, "shard-1"), f.workspaceOn(t, sharded.Root)
	f.runPod(t, w, other)
	f.testPods(t, w, other, nil)
}

// workspaceOn returns a workspace on a shard that has bound the fleet.
func (f *fleet) workspaceOn(t *testing.T, shard string) *kcptest.Cluster {
	t.Helper()
	root, name := f.server.Named("root"), "consumer-of-"+shard
	root.CreateWorkspace(t, kcptest.Masters, kcptest.On(shard, kcptest.Workspace(name, "", "")))
	w := f.server.Named(root.GetWorkspace(t, name).Spec.Cluster)
	f.bind(t, w, "{}")
	return w
}
