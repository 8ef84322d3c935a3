package index

import (
	"math"
	"slices"
	"strings"

	"github.com/kcplane/kcp/server/internal/shards/tree"
)

func clone(s string) string { return strings.Clone(s) }

// firstEpoch is the epoch of placements that do not record one.
const firstEpoch = 1

func epochOf(epoch uint64) (uint32, bool) {
	return uint32(max(epoch, firstEpoch)), epoch <= math.MaxUint32
}

// SetEdge takes what a shard says about a workspace.
func (t *Table) SetEdge(source string, e tree.Edge) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from, parent := t.shardOf(source), t.intern(e.Parent)
	t.shards[from].sent = true
	if parent == 0 {
		t.ignored++
		return
	}
	t.node(parent).references++ // while it is in use here
	defer t.unreference(parent)
	epoch, ok := epochOf(e.Epoch)
	next := further{epoch: epoch, uid: e.UID, target: from, unavailable: e.Unavailable, mount: e.Cluster == "", mark: t.shards[from].mark}
	if e.Shard != "" {
		next.target = t.shardOf(e.Shard)
	}
	if !e.Deleted && e.Cluster != "" {
		next.child = t.intern(e.Cluster)
		ok = ok && next.child != 0
	}
	if ok = ok && from != 0 && next.target != 0 && e.Name != "" && len(e.Name) <= maxLabel; !ok {
		t.ignored++
		if next.child != 0 {
			t.release(next.child)
		}
		return
	}
	t.replaceEdge(edgeKey{from, parent, e.Name}, next, e.Deleted)
}

// replaceEdge replaces the edge with a key, or removes it.
func (t *Table) replaceEdge(key edgeKey, next further, remove bool) {
	if next.child != 0 {
		t.node(next.child).references++
		defer t.unreference(next.child)
	}
	if id := t.child(key.source, key.parent, []byte(key.label)); id != 0 {
		n := t.node(id)
		if !remove && id == next.child {
			n.marks = n.marks&0x0f | next.mark<<4
			if next.epoch >= n.edgeEpoch {
				t.fill(id, next)
			}
			return
		}
		t.removeEdge(id)
	} else if old, ok := t.edges[key]; ok {
		if !remove && old.child == next.child && next.epoch < old.epoch {
			old.mark = next.mark
			return
		}
		t.removeFurther(key)
	}
	if remove {
		return
	}
	t.node(key.parent).references++
	if next.child != 0 && t.node(next.child).source == 0 {
		t.placeEdge(key, next)
		return
	}
	key.label = clone(key.label)
	t.edges[key] = &next
	if next.child != 0 {
		t.node(next.child).references++
		t.naming[next.child] = append(t.naming[next.child], key)
	}
}

// placeEdge puts an edge into the node of its child, which has none.
func (t *Table) placeEdge(key edgeKey, e further) {
	n := t.node(e.child)
	n.parent, n.source, n.label = key.parent, key.source, t.labels.add(key.label)
	n.marks = n.marks&0x0f | e.mark<<4
	t.byEdge.add(e.child, t.hashEdge)
	t.fill(e.child, e)
}

// fill sets what an edge says about its child, and moves the claim of its target to the node.
func (t *Table) fill(id uint32, e further) {
	n := t.node(id)
	n.target, n.edgeEpoch, n.flags = e.target, e.epoch, n.flags&^unavailable
	if e.unavailable {
		n.flags |= unavailable
	}
	if n.claimant != 0 && n.claimant != n.target {
		t.claims[claimKey{id, n.claimant}] = claim{uid: n.uid, epoch: n.claimEpoch, orphan: n.flags&orphan != 0, mark: n.marks & 0x0f}
		n.references++
		n.claimant, n.claimEpoch, n.flags = 0, 0, n.flags&^orphan
		n.uid = tree.UID{}
	}
	if n.claimant == 0 {
		n.uid = e.uid
		key := claimKey{id, n.target}
		if c, ok := t.claims[key]; ok {
			delete(t.claims, key)
			n.references--
			t.fillClaim(id, n.target, c)
		}
	}
}

func (t *Table) fillClaim(id uint32, from uint16, c claim) {
	n := t.node(id)
	n.claimant, n.claimEpoch, n.uid, n.flags = from, c.epoch, c.uid, n.flags&^orphan
	if c.orphan {
		n.flags |= orphan
	}
	n.marks = n.marks&0xf0 | c.mark
}

// removeEdge removes the edge in a node. Another edge to the node takes its place.
func (t *Table) removeEdge(id uint32) {
	n := t.node(id)
	t.byEdge.remove(id, t.hashEdge)
	t.labels.drop(n.label)
	parent := n.parent
	n.parent, n.label, n.source, n.target, n.edgeEpoch, n.flags, n.marks = 0, 0, 0, 0, 0, n.flags&^unavailable, n.marks&0x0f
	n.references++
	if others := t.naming[id]; len(others) > 0 {
		key := others[0]
		e := *t.edges[key]
		t.node(key.parent).references++ // removeFurther releases the one of the edge
		t.removeFurther(key)
		t.placeEdge(key, e)
	}
	t.unreference(id)
	t.unreference(parent)
	t.compact()
}

func (t *Table) removeFurther(key edgeKey) {
	e := t.edges[key]
	delete(t.edges, key)
	if e.child != 0 {
		if left := slices.DeleteFunc(t.naming[e.child], func(k edgeKey) bool { return k == key }); len(left) > 0 {
			t.naming[e.child] = left
		} else {
			delete(t.naming, e.child)
		}
		t.unreference(e.child)
	}
	t.unreference(key.parent)
}

// compact copies the names of workspaces when half of their memory is unused.
func (t *Table) compact() {
	if !t.labels.wasteful() {
		return
	}
	old := t.labels
	t.labels = labels{}
	for id := uint32(1); id <= t.nodes; id++ {
		if n := t.node(id); n.source != 0 {
			n.label = t.labels.add(string(old.at(n.label)))
		}
	}
}

// SetCluster takes what a shard says about a logical cluster.
func (t *Table) SetCluster(source string, c tree.Cluster) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := t.shardOf(source)
	t.shards[from].sent = true
	epoch, ok := epochOf(c.Epoch)
	p, valid := pack(c.Name)
	if !ok || !valid || from == 0 {
		t.ignored++
		return
	}
	if c.Deleted {
		if id := t.lookup(p); id != 0 {
			t.removeClaim(id, from)
		}
		return
	}
	id, next := t.intern(c.Name), claim{uid: c.UID, epoch: epoch, orphan: c.Parent == "", mark: t.shards[from].mark}
	n, key := t.node(id), claimKey{id, from}
	if (n.source == 0 || n.target == from) && (n.claimant == 0 || n.claimant == from) {
		t.fillClaim(id, from, next)
		if t.has(key) { // from a time when the edge had another target
			delete(t.claims, key)
			t.unreference(id)
		}
		return
	}
	if !t.has(key) {
		n.references++
	}
	t.claims[key] = next
}

// removeClaim removes the claim of a shard. The UID of a node stays, because the edge may have the same.
func (t *Table) removeClaim(id uint32, from uint16) {
	n := t.node(id)
	if n.claimant == from {
		n.claimant, n.claimEpoch, n.flags, n.marks = 0, 0, n.flags&^orphan, n.marks&0xf0
		t.release(id)
	} else if key := (claimKey{id, from}); t.has(key) {
		delete(t.claims, key)
		t.unreference(id)
	}
}

func (t *Table) has(key claimKey) bool {
	_, ok := t.claims[key]
	return ok
}
