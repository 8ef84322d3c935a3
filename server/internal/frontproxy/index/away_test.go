package index

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// stored returns what leads from the root shard to others, as it is read from a file.
func stored(t *testing.T, from *Table) (part Part) {
	t.Helper()
	text, err := json.Marshal(from.Away("root"))
	if err == nil {
		err = json.Unmarshal(text, &part)
	}
	if err != nil {
		t.Fatal(err)
	}
	return part
}

func crossing(parent, name, cluster string) tree.Edge {
	e := edge(parent, name, cluster)
	e.Shard, e.Epoch, e.UID = "two", 4, uid(9)
	return e
}

func TestOtherShardsAreFoundWithAStoredPartOfRoot(t *testing.T) {
	before := installation()
	before.SetEdge("root", crossing("v1u4alow0iv9", "shared", "shared0"))
	before.SetEdge("root", crossing("toys0", "again", "shared0")) // a conflict is one afterwards, too
	before.SetEdge("root", crossing("v1u4alow0iv9", "other", "other0"))
	x := New()
	x.Restore("root", stored(t, before))
	x.SetCluster("two", claimed("team0", "org0", 2))
	x.SetEdge("two", edge("team0", "below", "below0"))
	for _, path := range []string{"root:org:team", "team0", "root:org:team:below", "below0", "user:alice:other", "other0", "shared0", "user:alice"} {
		want := before.Lookup(Canonical(path))
		if want.Place.Cluster == "below0" {
			want.Place.UID = tree.UID{} // which shard two has not sent
		}
		if diff := cmp.Diff(want, x.Lookup(Canonical(path))); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	for _, path := range []string{"root:down", "user:alice:toys:none", "under0"} {
		if got := x.Lookup(Canonical(path)); got.State != Unknown {
			t.Errorf("%s: got %+v", path, got)
		}
	}
	x.Forget("root")
	if got := x.Lookup("root:org:team"); got.State != Unknown {
		t.Errorf("after a snapshot that does not confirm it: got %+v", got)
	}
}

func TestAStoredPartIsBounded(t *testing.T) {
	x := New()
	for i := range maxAway + 10 {
		x.SetEdge("root", crossing("root", fmt.Sprintf("org-%d", i), fmt.Sprintf("c%d", i)))
	}
	if got := len(x.Away("root").Edges); got != maxAway {
		t.Errorf("got %d edges", got)
	}
}

func TestAPartOfADeepTreeIsComplete(t *testing.T) {
	x, parent := New(), logicalcluster.Root
	for i := range 1000 {
		child := logicalcluster.Name(fmt.Sprintf("c%d", i))
		x.SetEdge("root", edge(string(parent), "below", string(child)))
		parent = child
	}
	x.SetEdge("root", crossing(string(parent), "away", "away0"))
	if got := len(x.Away("root").Edges); got != 1001 {
		t.Errorf("got %d edges", got)
	}
	if got := len(x.Away("absent").Edges); got != 0 {
		t.Errorf("got %d edges of an unknown shard", got)
	}
}
