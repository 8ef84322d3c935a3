package index

import (
	"slices"
	"strings"

	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// maxAway is the maximum number of edges to other shards in a Part. A front proxy stores it, with some 200 bytes for each.
const maxAway = 100_000

// Part is a part of what a shard has sent.
type Part struct {
	Edges []tree.Edge `json:"edges,omitempty"`
	// Homes are the logical clusters without a parent above the edges.
	Homes []tree.Cluster `json:"homes,omitempty"`
}

// Away returns what leads from a shard to others: the edges to logical clusters that others hold, and what is above these. With it, paths
// are resolved while the shard does not respond. It lets requests pass in between.
func (t *Table) Away(source string) Part {
	t.mu.RLock()
	a := &away{table: t, from: t.ids[source], edges: map[edgeKey]tree.Edge{}, above: map[uint32]bool{}}
	t.mu.RUnlock()
	if a.from == 0 {
		return Part{}
	}
	for first := uint32(0); a.readNodes(first); first += slabSize {
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for key, e := range t.edges {
		if key.source == a.from && e.child != 0 && e.target != a.from {
			a.add(key, *e)
		}
	}
	return a.part()
}

// away collects a Part.
type away struct {
	table *Table
	from  uint16
	edges map[edgeKey]tree.Edge
	homes []tree.Cluster
	// above are the nodes whose ancestors are collected.
	above map[uint32]bool
}

// readNodes reads the edges in one slab, and reports whether there are more.
func (a *away) readNodes(first uint32) bool {
	t := a.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i := max(first, 1); i < first+slabSize && i <= t.nodes; i++ {
		if n := t.node(i); n.source == a.from && n.target != a.from {
			a.add(t.edgeOf(i))
		}
	}
	return first+slabSize <= t.nodes
}

// edgeOf returns the edge in a node.
func (t *Table) edgeOf(id uint32) (edgeKey, further) {
	n := t.node(id)
	return edgeKey{n.source, n.parent, string(t.labels.at(n.label))}, further{child: id, epoch: n.edgeEpoch, uid: n.uid, target: n.target,
		unavailable: n.flags&unavailable != 0}
}

// add adds an edge to another shard, and what is above it.
func (a *away) add(key edgeKey, e further) {
	if len(a.edges) >= maxAway {
		return
	}
	a.edges[key] = a.record(key, e)
	t, id := a.table, key.parent
	for !a.above[id] && t.node(id).name != packedRoot {
		a.above[id] = true
		if t.node(id).source != a.from {
			a.addHome(id)
			return
		}
		key, e = t.edgeOf(id)
		a.edges[key] = a.record(key, e)
		id = key.parent
	}
}

func (a *away) record(key edgeKey, e further) tree.Edge {
	t := a.table
	edge := tree.Edge{Parent: t.node(key.parent).name.name(), Name: clone(key.label), Cluster: t.node(e.child).name.name(),
		Epoch: uint64(e.epoch), UID: e.uid, Unavailable: e.unavailable}
	if e.target != a.from {
		edge.Shard = t.shards[e.target].name
	}
	return edge
}

func (a *away) addHome(id uint32) {
	if c, ok := a.table.claimOf(id, a.from); ok && c.orphan {
		a.homes = append(a.homes, tree.Cluster{Name: a.table.node(id).name.name(), UID: c.uid, Epoch: uint64(c.epoch)})
	}
}

// part returns what was collected, in an order that changes with the content only.
func (a *away) part() Part {
	var p Part
	for _, e := range a.edges {
		p.Edges = append(p.Edges, e)
	}
	slices.SortFunc(p.Edges, func(x, y tree.Edge) int {
		return compare(x.Parent, y.Parent, x.Name, y.Name)
	})
	p.Homes = a.homes
	slices.SortFunc(p.Homes, func(x, y tree.Cluster) int { return compare(x.Name, y.Name, "", "") })
	return p
}

func compare(a, b logicalcluster.Name, more, than string) int {
	if d := strings.Compare(string(a), string(b)); d != 0 {
		return d
	}
	return strings.Compare(more, than)
}

// Restore takes what Away has returned, perhaps long ago. The next snapshot of the shard removes what it does not confirm.
func (t *Table) Restore(source string, p Part) {
	for _, e := range p.Edges {
		t.SetEdge(source, e)
	}
	for _, c := range p.Homes {
		t.SetCluster(source, c)
	}
}
