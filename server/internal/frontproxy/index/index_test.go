package index

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func uid(n int) tree.UID { return uuid.NewSHA1(uuid.Nil, fmt.Append(nil, n)) }

func edge(parent, name, cluster string) tree.Edge {
	return tree.Edge{Parent: logicalcluster.Name(parent), Name: name, Cluster: logicalcluster.Name(cluster)}
}

func claimed(name, parent string, n int) tree.Cluster {
	return tree.Cluster{Name: logicalcluster.Name(name), Parent: logicalcluster.Name(parent), UID: uid(n), Epoch: 1}
}

// installation is a tree over two shards: root:org is in root, root:org:team in two, root:org:team:below in two.
func installation() *Table {
	t := New()
	t.SetCluster("root", claimed("root", "", 0))
	t.SetCluster("root", claimed("org0", "root", 1))
	t.SetEdge("root", edge("root", "org", "org0"))
	e := edge("org0", "team", "team0")
	e.Shard, e.Epoch, e.UID = "two", 3, uid(2)
	t.SetEdge("root", e)
	t.SetCluster("two", claimed("team0", "org0", 2))
	t.SetEdge("two", edge("team0", "below", "below0"))
	t.SetCluster("two", claimed("below0", "team0", 3))
	t.SetCluster("root", claimed("v1u4alow0iv9", "", 4)) // the home of alice
	t.SetEdge("root", edge("v1u4alow0iv9", "toys", "toys0"))
	t.SetEdge("root", tree.Edge{Parent: "org0", Name: "mounted", URL: "https://elsewhere"})
	down := edge("root", "down", "down0")
	down.Unavailable = true
	t.SetEdge("root", down)
	t.SetEdge("root", edge("down0", "under", "under0"))
	return t
}

func TestPathsAndNamesLeadToTheShardThatHoldsTheCluster(t *testing.T) {
	index := installation()
	team := Place{Shard: "two", Cluster: "team0", UID: uid(2), Epoch: 3}
	below := Place{Shard: "two", Cluster: "below0", UID: uid(3), Epoch: 1}
	org := Place{Shard: "root", Cluster: "org0", UID: uid(1), Epoch: 1}
	mounted := org
	mounted.Mount = "mounted"
	for path, want := range map[string]Answer{
		"root":                   {State: Found, Place: Place{Shard: "root", Cluster: "root", UID: uid(0), Epoch: 1}},
		"root:org":               {State: Found, Place: org},
		"org0":                   {State: Found, Place: org},
		"root:org:team":          {State: Found, Place: team},
		"team0":                  {State: Found, Place: team},
		"root:org:team:below":    {State: Found, Place: below},
		"team0:below":            {State: Found, Place: below},
		"below0":                 {State: Found, Place: below},
		"user:alice":             {State: Found, Place: Place{Shard: "root", Cluster: "v1u4alow0iv9", UID: uid(4), Epoch: 1}},
		"user:alice:toys":        {State: Found, Place: Place{Shard: "root", Cluster: "toys0", Epoch: 1}},
		"root:org:mounted":       {State: Found, Place: mounted},
		"root:down":              {State: Found, Place: Place{Shard: "root", Cluster: "down0", Epoch: 1, Unavailable: true}},
		"root:down:under":        {State: Found, Place: Place{Shard: "root", Cluster: "under0", Epoch: 1, Unavailable: true}},
		"under0":                 {State: Found, Place: Place{Shard: "root", Cluster: "under0", Epoch: 1}},
		"root:org:team:none:x":   {Place: team, Missing: "none:x"},
		"root:org:mounted:below": {Place: org, Missing: "mounted:below"},
		"none0":                  {Missing: "none0"},
		"none0:x":                {Missing: "none0:x"},
		"user:bob":               {Missing: "2okdry95y5lkv"},
		"Upper":                  {Missing: "Upper"},
		"":                       {Missing: ""},
	} {
		if diff := cmp.Diff(want, index.Lookup(Canonical(path))); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

func TestAnEmptyIndexKnowsWhoHoldsRoot(t *testing.T) {
	want := Answer{Place: Place{Shard: "root", Cluster: "root", Epoch: 1}, Missing: "org"}
	if diff := cmp.Diff(want, New().Lookup("root:org")); diff != "" {
		t.Error(diff)
	}
}

func TestAShardCannotClaimWhatItsPartOfTheTreeDoesNotLeadTo(t *testing.T) {
	for name, forge := range map[string]func(*Table){
		"a claim with a higher epoch": func(x *Table) {
			x.SetCluster("evil", tree.Cluster{Name: "org0", Parent: "root", Workspace: "org", UID: uid(66), Epoch: 99})
			x.SetCluster("evil", tree.Cluster{Name: "root", UID: uid(66), Epoch: 99})
		},
		"an edge of a parent that it does not hold": func(x *Table) {
			e := edge("root", "org", "org0")
			e.Shard, e.Epoch = "evil", 99
			x.SetEdge("evil", e)
		},
		"a parent that it invents": func(x *Table) {
			x.SetCluster("evil", tree.Cluster{Name: "fake0", Epoch: 1})
			e := edge("fake0", "x", "org0")
			e.Shard, e.Epoch = "evil", 99
			x.SetEdge("evil", e)
		},
		"a circle": func(x *Table) {
			for _, e := range []tree.Edge{edge("loop1", "x", "loop2"), edge("loop2", "x", "loop1"), edge("loop1", "y", "org0")} {
				x.SetEdge("evil", e)
			}
		},
		"a home": func(x *Table) {
			x.SetCluster("evil", tree.Cluster{Name: "v1u4alow0iv9", UID: uid(66), Epoch: 99})
		},
		"the deletion of what another shard has": func(x *Table) {
			x.SetCluster("evil", tree.Cluster{Name: "org0", Deleted: true})
			x.SetEdge("evil", tree.Edge{Parent: "root", Name: "org", Deleted: true})
		},
	} {
		for _, first := range []bool{true, false} { // the forged records arrive before and after the others
			index := New()
			if first {
				forge(index)
			}
			for _, add := range []func(){
				func() { index.SetCluster("root", claimed("root", "", 0)) }, func() { index.SetCluster("root", claimed("org0", "root", 1)) },
				func() { index.SetEdge("root", edge("root", "org", "org0")) }, func() { index.SetCluster("root", claimed("v1u4alow0iv9", "", 4)) },
			} {
				add()
			}
			if !first {
				forge(index)
			}
			for path, want := range map[string]Place{
				"root": {Shard: "root", Cluster: "root", UID: uid(0), Epoch: 1}, "root:org": {Shard: "root", Cluster: "org0", UID: uid(1), Epoch: 1},
				"org0": {Shard: "root", Cluster: "org0", UID: uid(1), Epoch: 1}, "v1u4alow0iv9": {Shard: "root", Cluster: "v1u4alow0iv9", UID: uid(4), Epoch: 1},
			} {
				if got := index.Lookup(path); got.State != Found || got.Place != want {
					t.Errorf("%s (first: %t): %s leads to %+v", name, first, path, got)
				}
			}
		}
	}
}

func TestAClusterWithTwoWorkspacesIsInConflict(t *testing.T) {
	index := installation()
	stolen := edge("team0", "stolen", "org0")
	stolen.Epoch = 99
	index.SetEdge("two", stolen)
	if got := index.Lookup("org0"); got.State != Found || got.Place.Shard != "root" {
		t.Errorf("a workspace below a cluster changes where the cluster is: %+v", got)
	}
	other := edge("root", "other", "other0")
	other.Shard = "two"
	index.SetEdge("root", other)
	stolen.Parent = "other0"
	index.SetEdge("two", stolen)
	if got := index.Lookup("org0"); got.State != Conflict {
		t.Errorf("a name with two workspaces leads to %+v", got)
	}
	if got := index.Lookup("root:org"); got.State != Found || got.Place.Shard != "root" {
		t.Errorf("the path, which has one meaning, leads to %+v", got)
	}
	index.SetEdge("two", tree.Edge{Parent: "other0", Name: "stolen", Deleted: true})
	if got := index.Lookup("org0"); got.State != Found || got.Place.Shard != "root" {
		t.Errorf("after the conflict, the name leads to %+v", got)
	}
}

func TestAMoveFollowsTheRecordOfTheParent(t *testing.T) {
	index := installation()
	moved := edge("root", "org", "org0")
	moved.Shard, moved.Epoch, moved.UID = "two", 2, uid(1)
	index.SetCluster("two", tree.Cluster{Name: "org0", Parent: "root", UID: uid(1), Epoch: 2})
	index.SetEdge("two", edge("org0", "team", "team0")) // the copy at the destination
	for range 2 {
		if got := index.Lookup("org0").Place; got.Shard != "root" || got.Epoch != 1 {
			t.Errorf("before the commit, the cluster is at %+v", got)
		}
		if got := index.Lookup("root:org:team").Place; got.Shard != "two" || got.Epoch != 3 {
			t.Errorf("before the commit, the workspace below it is at %+v", got)
		}
	}
	index.SetEdge("root", moved)
	for path, want := range map[string]Place{
		"root:org": {Shard: "two", Cluster: "org0", UID: uid(1), Epoch: 2}, "org0": {Shard: "two", Cluster: "org0", UID: uid(1), Epoch: 2},
		"root:org:team": {Shard: "two", Cluster: "team0", UID: uid(2), Epoch: 1},
	} {
		if got := index.Lookup(path); got.State != Found || got.Place != want {
			t.Errorf("after the commit, %s leads to %+v", path, got)
		}
	}
	index.SetEdge("root", tree.Edge{Parent: "org0", Name: "team", Deleted: true}) // the origin cleans up
	index.SetCluster("root", tree.Cluster{Name: "org0", Deleted: true})
	if got := index.Lookup("below0").Place; got.Shard != "two" {
		t.Errorf("after the clean-up, a cluster below it is at %+v", got)
	}
	index.SetEdge("root", edge("root", "org", "org0"))
	if got := index.Lookup("org0").Place; got.Shard != "two" || got.Epoch != 2 {
		t.Errorf("an older epoch moves it back: %+v", got)
	}
}

func TestASnapshotRemovesWhatItDoesNotConfirm(t *testing.T) {
	for _, aborted := range []int{0, 1, 13, 14, 15, 16, 40} {
		index := installation()
		for range aborted {
			index.Begin("two")
			index.SetEdge("two", edge("team0", "ghost", "ghost0"))
		}
		index.Begin("two")
		index.SetEdge("two", edge("team0", "new", "new0"))
		if got := index.Lookup("root:org:team:below"); got.State != Found {
			t.Errorf("%d: during the snapshot, %+v", aborted, got)
		}
		index.End("two")
		for path, want := range map[string]State{"root:org:team:below": Unknown, "below0": Unknown, "new0": Found, "root:org:team:new": Found, "ghost0": Unknown,
			"root:org:team": Found, "root:org": Found} {
			if got := index.Lookup(path); got.State != want {
				t.Errorf("%d aborted: after the snapshot, %s: %+v", aborted, path, got)
			}
		}
	}
}

func TestAForgottenShardLeavesNothing(t *testing.T) {
	index := installation()
	index.Forget("two")
	index.Forget("root")
	if got := index.Stats(); got.Clusters != 0 || got.Mounts != 0 || len(index.claims) != 0 || len(index.naming) != 0 || index.byEdge.used != 0 {
		t.Errorf("left: %+v, %v, %v", got, index.claims, index.naming)
	}
}

func TestWhatCannotBeRepresentedIsIgnored(t *testing.T) {
	index := installation()
	before := index.Stats()
	index.SetEdge("root", edge("root", strings.Repeat("x", 256), "x0"))
	index.SetEdge("root", edge("root", "x", strings.Repeat("x", 25)))
	index.SetEdge("root", edge("UPPER", "x", "x0"))
	index.SetEdge("root", tree.Edge{Parent: "root", Name: "x", Cluster: "x0", Epoch: 1 << 32})
	index.SetCluster("root", tree.Cluster{Name: "a:b"})
	index.SetCluster("root", tree.Cluster{Name: "x0", Epoch: 1 << 40})
	after := index.Stats()
	if after.Ignored != before.Ignored+6 || after.Clusters != before.Clusters {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestNamesArePackedWithoutLoss(t *testing.T) {
	for _, name := range []logicalcluster.Name{"root", "0", "00", "000000000000", "0000000000000", "2fx8q1z4m0p7k3vd", "a-b", "zzzzzzzzzzzzzzzzzzzzzzzz", "v1u4alow0iv9"} {
		p, ok := pack(name)
		if !ok || p.name() != name {
			t.Errorf("%s became %s, %t", name, p.name(), ok)
		}
	}
}

// model is the same as the index, without its economy.
type model struct {
	edges  map[[3]string]tree.Edge // by source, parent, name
	claims map[[2]string]tree.Cluster
}

func (m model) holder(cluster string, below ...string) (shard string, state State) {
	if cluster == "root" {
		return "root", Found
	}
	if slices.Contains(below, cluster) {
		return "", Unknown
	}
	below = append(slices.Clone(below), cluster)
	for key, e := range m.edges {
		if string(e.Cluster) != cluster {
			continue
		}
		if above, known := m.holder(key[1], below...); known == Found && above == key[0] {
			if state != Unknown {
				state = Conflict
				continue
			}
			shard, state = e.Shard, Found
		}
	}
	if state == Unknown {
		if c, ok := m.claims[[2]string{"root", cluster}]; ok && c.Parent == "" {
			return "root", Found
		}
	}
	return shard, state
}

func TestTheIndexIsAsTheModel(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		index, m := New(), model{map[[3]string]tree.Edge{}, map[[2]string]tree.Cluster{}}
		shards := []string{"root", "two", "three"}
		name := func() string { return fmt.Sprintf("c%d", r.IntN(5)) }
		parent := func() string {
			if r.IntN(3) == 0 {
				return "root"
			}
			return name()
		}
		for step := range 3000 {
			source := shards[r.IntN(3)]
			switch r.IntN(3) {
			case 0:
				e := edge(parent(), fmt.Sprintf("w%d", r.IntN(2)), name())
				key := [3]string{source, string(e.Parent), e.Name}
				if r.IntN(3) != 0 {
					delete(m.edges, key)
					e.Deleted, e.Cluster = true, ""
				} else {
					e.Shard, e.Epoch = shards[r.IntN(3)], 1
					m.edges[key] = e
				}
				index.SetEdge(source, e)
			case 1:
				c := tree.Cluster{Name: logicalcluster.Name(name()), UID: uid(step), Epoch: 1, Deleted: r.IntN(2) == 0}
				if r.IntN(2) == 0 {
					c.Parent = "root"
				}
				index.SetCluster(source, c)
				if m.claims[[2]string{source, string(c.Name)}] = c; c.Deleted {
					delete(m.claims, [2]string{source, string(c.Name)})
				}
			case 2:
				if r.IntN(50) != 0 {
					continue
				}
				m.snapshot(index, source)
			}
			for i := range 5 {
				cluster := fmt.Sprintf("c%d", i)
				shard, state := m.holder(cluster)
				got := index.Lookup(cluster)
				if got.State != state || state == Found && got.Place.Shard != shard {
					t.Fatalf("seed %d, step %d, %s: got %+v, want %s (%d)", seed, step, cluster, got, shard, state)
				}
				c, claimed := m.claims[[2]string{shard, cluster}]
				if claimed && state == Found && got.Place.UID != c.UID {
					t.Fatalf("seed %d, step %d, %s: UID %s, want %s", seed, step, cluster, got.Place.UID, c.UID)
				}
			}
		}
		for _, s := range shards {
			index.Forget(s)
		}
		if left := index.Stats(); left.Clusters != 0 || left.Mounts != 0 || len(index.claims)+len(index.naming)+index.byEdge.used+index.byName.used != 0 {
			t.Fatalf("seed %d: left %+v", seed, left)
		}
	}
}

// snapshot sends all of a shard again, except for one edge.
func (m model) snapshot(index *Table, source string) {
	index.Begin(source)
	dropped := false
	for key, e := range m.edges {
		if key[0] != source {
			continue
		}
		if !dropped {
			dropped = true
			delete(m.edges, key)
			continue
		}
		index.SetEdge(source, e)
	}
	for key, c := range m.claims {
		if key[0] == source {
			index.SetCluster(source, c)
		}
	}
	index.End(source)
}

func TestNamesOfDeletedWorkspacesLeaveNoMemory(t *testing.T) {
	index := New()
	for round := range 400 {
		for i := range 100 {
			index.SetEdge("root", edge("root", fmt.Sprintf("a-workspace-with-a-long-name-%d-%d", round, i), fmt.Sprintf("c%d", i)))
		}
		for i := range 100 {
			index.SetEdge("root", tree.Edge{Parent: "root", Name: fmt.Sprintf("a-workspace-with-a-long-name-%d-%d", round, i), Deleted: true})
		}
	}
	if got := len(index.labels.chunks); got > 4 {
		t.Errorf("%d chunks are in use for nothing", got)
	}
}

// fill adds n workspaces below 1000 organizations, with names as they are generated, on shards.
func fill(index *Table, n int, spread bool) {
	r := rand.New(rand.NewPCG(1, 1))
	generated := func() logicalcluster.Name {
		name := make([]byte, 16)
		for i := range name {
			name[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[r.IntN(36)]
		}
		return logicalcluster.Name(name)
	}
	index.SetCluster("root", tree.Cluster{Name: "root"})
	organizations := make([]logicalcluster.Name, 1000)
	for i := range organizations {
		organizations[i] = generated()
		e := edge("root", fmt.Sprintf("org-%d", i), string(organizations[i]))
		e.Shard = fmt.Sprintf("shard-%d", i%10)
		index.SetEdge("root", e)
		index.SetCluster(e.Shard, tree.Cluster{Name: organizations[i], Parent: "root", Workspace: e.Name, UID: uid(i), Epoch: 1})
	}
	id := uuid.New()
	for i := range n - 1001 {
		source, target := fmt.Sprintf("shard-%d", i%10), ""
		if spread {
			target = fmt.Sprintf("shard-%d", r.IntN(10))
		}
		e := tree.Edge{Parent: organizations[i%1000], Name: fmt.Sprintf("workspace-%d", i), Cluster: generated(), Shard: target, Epoch: 1, UID: id}
		index.SetEdge(source, e)
		if target == "" {
			target = source
		}
		index.SetCluster(target, tree.Cluster{Name: e.Cluster, Parent: e.Parent, Workspace: e.Name, UID: id, Epoch: 1})
	}
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkMemory reports the memory of a workspace, which must be 100 bytes at most.
func BenchmarkMemory(b *testing.B) {
	const n = 1_000_000
	for _, spread := range []bool{false, true} {
		b.Run(fmt.Sprintf("spread=%t", spread), func(b *testing.B) {
			for b.Loop() {
				before, began := heap(), time.Now()
				index := New()
				fill(index, n, spread)
				b.ReportMetric(time.Since(began).Seconds(), "s/fill")
				each := float64(heap()-before) / n
				b.ReportMetric(each, "B/workspace")
				b.ReportMetric(float64(index.Stats().Bytes)/n, "reported-B/workspace")
				if each > 100 {
					b.Errorf("a workspace takes %.1f bytes", each)
				}
				runtime.KeepAlive(index)
			}
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	index := New()
	fill(index, 100_000, false)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if got := index.Lookup(fmt.Sprintf("root:org-%d:workspace-%d", i%1000, i%90_000)); got.State != Found {
			b.Fatal(got)
		}
	}
}
