package index

import (
	"fmt"
	"testing"

	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// snapshots sends the first snapshots of many shards, each with as many workspaces.
func snapshots(index *Table, shards, workspaces int) {
	for shard := range shards {
		source, org := fmt.Sprintf("shard-%d", shard), fmt.Sprintf("o%05d", shard)
		e := edge("root", "org-"+source, org)
		e.Shard = source
		index.SetEdge("root", e)
		index.Begin(source)
		index.SetCluster(source, claimed(org, "root", shard))
		for i := range workspaces {
			cluster := fmt.Sprintf("w%05dx%05d", shard, i)
			index.SetCluster(source, tree.Cluster{Name: logicalcluster.Name(cluster), Parent: logicalcluster.Name(org), Epoch: 1})
			index.SetEdge(source, edge(org, fmt.Sprintf("workspace-%d", i), cluster))
		}
		index.End(source)
	}
}

// BenchmarkSnapshots reports how long the first snapshots take for each workspace, of few shards and of many.
func BenchmarkSnapshots(b *testing.B) {
	const n = 300_000
	for _, shards := range []int{10, 1000} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			for b.Loop() {
				snapshots(New(), shards, n/shards)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/workspace")
		})
	}
}

func TestTheFirstSnapshotOfAShardDoesNotReadTheOthers(t *testing.T) {
	index := New()
	isStale := func(source string) bool { return index.shards[index.ids[source]].stale }
	for n, first := range []bool{true, false, false} {
		index.Begin("one")
		index.SetCluster("one", claimed(fmt.Sprint("c", n), "root", n))
		if isStale("one") == first {
			t.Errorf("snapshot %d: what is older is stale: %v", n, isStale("one"))
		}
		index.End("one")
	}
	if got := index.Stats().Clusters; got != 1 {
		t.Errorf("%d clusters, want that of the last snapshot", got)
	}
	index.Begin("interrupted")
	index.SetCluster("interrupted", claimed("d", "root", 4))
	if index.Begin("interrupted"); !isStale("interrupted") {
		t.Error("what an interrupted snapshot had is not stale")
	}
	index.SetEdge("restored", edge("root", "e", "e"))
	if index.Begin("restored"); !isStale("restored") {
		t.Error("what was there before the first snapshot is not stale")
	}
}
