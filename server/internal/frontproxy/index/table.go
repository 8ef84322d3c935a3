package index

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// node is what is known about a logical cluster: the claim of the shard that holds it, and the edge to it, which its parent's shard sends.
//
// Invariants:
//   - The edge is that of a source and names this cluster. Further edges to the cluster are in Table.edges.
//   - If there is an edge, the claim is that of the edge's target. Claims of other shards are in Table.claims.
//   - uid is that of the claim, and without a claim that of the edge.
//   - A node with references is not freed: those from the edges of its children, further edges to it, and further claims.
type node struct {
	name                  packed
	uid                   tree.UID
	parent, label         uint32 // of the edge
	claimEpoch, edgeEpoch uint32
	references            uint32
	claimant              uint16 // of the claim; 0 without one
	source, target        uint16 // of the edge; source is 0 without one
	flags                 uint8
	marks                 uint8 // claim, edge: the mark of the snapshot that confirmed each of them
}

const (
	// unavailable is a flag of the edge.
	unavailable = 1 << iota
	// orphan is a flag of a claim without a parent: root, and homes.
	orphan
)

const slabSize = 4096

// further is an edge that is in no node: a mount, or an edge to a cluster whose node has another edge.
type further struct {
	child, epoch       uint32 // child is 0 for a mount
	uid                tree.UID
	target             uint16
	unavailable, mount bool
	mark               uint8
}

type edgeKey struct {
	source uint16
	parent uint32
	label  string
}

type claimKey struct {
	node  uint32
	shard uint16
}

// claim is what a shard says that is not the target of the edge to a cluster.
type claim struct {
	uid    tree.UID
	epoch  uint32
	orphan bool
	mark   uint8
}

// shard is one source.
type shard struct {
	name string
	// mark is that of the newest snapshot, and open the number of snapshots that have begun since one was complete.
	mark, open uint8
	// sent reports that the index may have something from the shard, and stale that some of it may be older than the newest snapshot.
	sent, stale bool
}

// Table is the index. It is safe for concurrent use.
//
// Invariants:
//   - Where a logical cluster is, is said by the edge to it. An edge counts only from the shard that holds the parent; the root shard holds
//     root. So no shard can claim what its part of the tree does not lead to.
//   - A cluster to which two edges lead that count is in conflict: neither shard gets requests for it by name.
//   - Epochs of an edge from one shard to one cluster never fall.
//   - What a snapshot does not confirm is removed when it is complete, and serves until then.
type Table struct {
	// seed and secret prevent that tenants choose names with the same hash.
	seed   maphash.Seed
	secret [2]uint64

	mu       sync.RWMutex
	slabs    [][]node
	free     []uint32
	nodes    uint32 // the highest used node
	byName   slots
	byEdge   slots
	labels   labels
	shards   []shard // by identifier; 0 is none
	ids      map[string]uint16
	edges    map[edgeKey]*further
	naming   map[uint32][]edgeKey // the edges of Table.edges to a node
	claims   map[claimKey]claim
	clusters int
	// ignored is the number of records that the index cannot represent.
	ignored int
}

// rootShard is the identifier of the root shard.
const rootShard = 1

// New returns an empty index.
func New() *Table {
	t := &Table{seed: maphash.MakeSeed(), secret: [2]uint64{rand.Uint64(), rand.Uint64()}, ids: map[string]uint16{},
		edges: map[edgeKey]*further{}, naming: map[uint32][]edgeKey{}, claims: map[claimKey]claim{}, shards: make([]shard, 1)}
	t.shardOf(peers.Root)
	return t
}

// Stats are figures for metrics.
type Stats struct {
	// Clusters is the number of logical clusters, and Mounts that of mounted workspaces and of further edges to a cluster.
	Clusters, Mounts int
	// Ignored is the number of records that the index could not take.
	Ignored int
	// Bytes is the memory of the index, without that of Mounts.
	Bytes int
}

// Stats returns figures for metrics.
func (t *Table) Stats() Stats {
	t.mu.RLock()
	defer t.mu.RUnlock()
	const nodeBytes = 60
	return Stats{
		Clusters: t.clusters, Mounts: len(t.edges), Ignored: t.ignored,
		Bytes: len(t.slabs)*slabSize*nodeBytes + 4*(len(t.byName.table)+len(t.byEdge.table)+cap(t.free)) + len(t.labels.chunks)*chunkSize,
	}
}

func (t *Table) node(id uint32) *node { return &t.slabs[id/slabSize][id%slabSize] }

// shardOf returns the identifier of a shard; 0 if there are too many.
func (t *Table) shardOf(name string) uint16 {
	if id, ok := t.ids[name]; ok {
		return id
	}
	if len(t.shards) >= 1<<16 {
		return 0
	}
	id := uint16(len(t.shards))
	name = clone(name)
	t.ids[name] = id
	t.shards = append(t.shards, shard{name: name})
	return id
}

func (t *Table) hashName(p packed) uint64 {
	hi, lo := bits.Mul64(p.word(0)^t.secret[0], p.word(1)^t.secret[1])
	return hi ^ lo
}

func (t *Table) hashNode(id uint32) uint64 { return t.hashName(t.node(id).name) }

func (t *Table) hashChild(parent uint32, label []byte) uint64 {
	hi, lo := bits.Mul64(maphash.Bytes(t.seed, label)^uint64(parent), 0x9e3779b97f4a7c15)
	return hi ^ lo
}

func (t *Table) hashEdge(id uint32) uint64 {
	n := t.node(id)
	return t.hashChild(n.parent, t.labels.at(n.label))
}

// lookup returns the node of a name; 0 without one.
func (t *Table) lookup(p packed) uint32 {
	return t.byName.find(t.hashName(p), func(id uint32) bool { return t.node(id).name == p })
}

// child returns the node to which an edge of a source leads; 0 without one in a node.
func (t *Table) child(source uint16, parent uint32, label []byte) uint32 {
	return t.byEdge.find(t.hashChild(parent, label), func(id uint32) bool {
		n := t.node(id)
		return n.parent == parent && n.source == source && string(t.labels.at(n.label)) == string(label)
	})
}

// intern returns the node of a name, which it creates if there is none; 0 if the name is none of a logical cluster.
func (t *Table) intern(name logicalcluster.Name) uint32 {
	p, ok := pack(name)
	if !ok {
		return 0
	}
	if id := t.lookup(p); id != 0 {
		return id
	}
	var id uint32
	if last := len(t.free) - 1; last >= 0 {
		id, t.free = t.free[last], t.free[:last]
	} else {
		t.nodes++
		if id = t.nodes; int(id/slabSize) >= len(t.slabs) {
			t.slabs = append(t.slabs, make([]node, slabSize))
		}
	}
	t.node(id).name = p
	t.byName.add(id, t.hashNode)
	t.clusters++
	return id
}

// release frees a node about which nothing is known anymore.
func (t *Table) release(id uint32) {
	n := t.node(id)
	if n.source != 0 || n.claimant != 0 || n.references != 0 {
		return
	}
	t.byName.remove(id, t.hashNode)
	*n = node{}
	t.free = append(t.free, id)
	t.clusters--
}

// unreference removes a reference to a node.
func (t *Table) unreference(id uint32) {
	t.node(id).references--
	t.release(id)
}
