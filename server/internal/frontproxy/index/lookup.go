package index

import (
	"slices"
	"strings"

	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Limits of the look-up of a name: the depth of a workspace below root, and the number of edges that are followed. Without them, a shard
// could send edges with which every look-up takes long.
const maxDepth, maxSteps = 64, 1024

// Place is where a path leads.
type Place struct {
	// Shard holds Cluster.
	Shard   string
	Cluster logicalcluster.Name
	// UID and Epoch are those that the shard is expected to have; UID is zero if it is unknown.
	UID   tree.UID
	Epoch uint64
	// Mount is the name of a mounted workspace in Cluster; empty without one. Shard proxies the requests to it.
	Mount string
	// Unavailable reports that a workspace on the path is unavailable.
	Unavailable bool
}

// State is what the index knows about a path.
type State int

// States of a path.
const (
	// Unknown means that the index does not have the path. It may exist: its edge may be on the way.
	Unknown State = iota
	// Found means that the place is that of the path.
	Found
	// Conflict means that two workspaces have the same logical cluster, so that none gets requests for it.
	Conflict
)

// Answer is the result of a look-up.
type Answer struct {
	State State
	// Place is that of the path or, for an unknown path, that of its deepest known ancestor. It is zero if no ancestor is known.
	Place Place
	// Missing is the part of an unknown path below Place. It is the whole path if no ancestor is known.
	Missing string
}

// Canonical returns a path that begins with a logical cluster: user:<name> is the home of a user.
func Canonical(path string) string {
	rest, home := strings.CutPrefix(path, "user:")
	if !home {
		return path
	}
	name, below, deeper := strings.Cut(rest, ":")
	path = string(pathindex.HomeCluster(name))
	if deeper {
		path += ":" + below
	}
	return path
}

// found is a place in the table.
type found struct {
	node  uint32
	shard uint16
	uid   tree.UID
	epoch uint32
}

// Lookup resolves a path, which must be canonical: the name of a logical cluster, and names of workspaces below it.
func (t *Table) Lookup(path string) Answer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	first, rest, more := strings.Cut(path, ":")
	p, ok := pack(logicalcluster.Name(first))
	if !ok {
		return Answer{Missing: path}
	}
	at, state := t.holder(t.lookup(p), p, &climb{steps: maxSteps})
	if state != Found {
		return Answer{State: state, Missing: path}
	}
	broken := false
	for more {
		var name string
		below := rest
		name, rest, more = strings.Cut(rest, ":")
		next, e, ok := t.step(at, name)
		broken = broken || e.unavailable
		switch {
		case !ok || e.mount && more:
			return Answer{Place: t.place(at, broken), Missing: below}
		case e.mount:
			place := t.place(at, broken)
			place.Mount = name
			return Answer{State: Found, Place: place}
		}
		at = next
	}
	return Answer{State: Found, Place: t.place(at, broken)}
}

func (t *Table) place(at found, broken bool) Place {
	return Place{Shard: t.shards[at.shard].name, Cluster: t.nameOf(at), UID: at.uid, Epoch: uint64(at.epoch), Unavailable: broken}
}

func (t *Table) nameOf(at found) logicalcluster.Name {
	if at.node == 0 {
		return logicalcluster.Root // holder returns no other place without a node
	}
	return t.node(at.node).name.name()
}

// step follows the edge of the shard that holds a cluster.
func (t *Table) step(at found, name string) (found, further, bool) {
	if at.node == 0 {
		return found{}, further{}, false
	}
	if id := t.child(at.shard, at.node, []byte(name)); id != 0 {
		n := t.node(id)
		e := further{child: id, epoch: n.edgeEpoch, uid: n.uid, target: n.target, unavailable: n.flags&unavailable != 0}
		return found{id, n.target, n.uid, n.edgeEpoch}, e, true
	}
	e, ok := t.edges[edgeKey{at.shard, at.node, name}]
	if !ok {
		return found{}, further{}, false
	}
	return t.over(*e), *e, true
}

// over returns the place to which a further edge leads.
func (t *Table) over(e further) found {
	to := found{e.child, e.target, e.uid, e.epoch}
	if e.child == 0 {
		return to
	}
	if n := t.node(e.child); n.claimant == e.target {
		to.uid = n.uid
	} else if c, ok := t.claims[claimKey{e.child, e.target}]; ok {
		to.uid = c.uid
	}
	return to
}

var packedRoot, _ = pack(logicalcluster.Root)

// climb is the state of the look-up of a name.
type climb struct {
	steps int
	// above are the clusters from the name upwards, which cannot be above themselves.
	above []uint32
}

// enter reports whether the look-up may go on at a cluster.
func (c *climb) enter(id uint32) bool {
	if c.steps--; c.steps < 0 || len(c.above) == maxDepth || slices.Contains(c.above, id) {
		return false
	}
	c.above = append(c.above, id)
	return true
}

func (c *climb) leave() { c.above = c.above[:len(c.above)-1] }

// holder returns the shard that holds a logical cluster. It climbs to root, because an edge counts only from the shard that holds the
// parent. id is 0 for a cluster without a node.
func (t *Table) holder(id uint32, p packed, c *climb) (at found, state State) {
	if p == packedRoot {
		return t.pinned(id), Found
	}
	if id == 0 || !c.enter(id) {
		return found{}, Unknown
	}
	defer c.leave()
	consider := func(source uint16, parent uint32, to found) {
		if above, known := t.holder(parent, t.node(parent).name, c); known != Found || above.shard != source {
			return
		}
		if at = to; state == Unknown {
			state = Found
		} else {
			state = Conflict
		}
	}
	if n := t.node(id); n.source != 0 {
		consider(n.source, n.parent, found{id, n.target, n.uid, n.edgeEpoch})
	}
	for _, key := range t.naming[id] {
		if c.steps <= 0 {
			return found{}, Unknown
		}
		consider(key.source, key.parent, t.over(*t.edges[key]))
	}
	if state == Unknown {
		if held, ok := t.claimOf(id, rootShard); ok && held.orphan {
			return found{id, rootShard, held.uid, held.epoch}, Found // a home
		}
	}
	return at, state
}

// pinned returns the place of root.
func (t *Table) pinned(id uint32) found {
	at := found{node: id, shard: rootShard, epoch: firstEpoch}
	if id != 0 {
		if c, ok := t.claimOf(id, rootShard); ok {
			at.uid, at.epoch = c.uid, c.epoch
		}
	}
	return at
}

// claimOf returns what a shard says about a cluster.
func (t *Table) claimOf(id uint32, from uint16) (claim, bool) {
	if n := t.node(id); n.claimant == from {
		return claim{uid: n.uid, epoch: n.claimEpoch, orphan: n.flags&orphan != 0}, true
	}
	c, ok := t.claims[claimKey{id, from}]
	return c, ok
}
