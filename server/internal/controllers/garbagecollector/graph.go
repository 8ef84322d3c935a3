package garbagecollector

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// object identifies an object of any cluster.
type object = runner.ObjectKey

// node is an object that has owners, or that waits for its dependents to be deleted or orphaned. The graph has no other objects.
type node struct {
	object
	uid    types.UID
	owners []types.UID
	blocks []types.UID // the owners that wait for this object when they are deleted in the foreground
}

// owner identifies an owner as its dependents refer to it. The cluster is part of it: objects own nothing in other clusters.
type owner struct {
	cluster logicalcluster.Name
	uid     types.UID
}

// graph is the ownership of objects over all clusters.
//
// Invariants:
//   - nodes has exactly the objects that were set with owners, or waiting for dependents, and not removed since.
//   - dependents[k] has a node if and only if the node is in nodes, in the cluster of k, and names the UID of k as an owner. Owners
//     without dependents have no entry. An owner need not be in nodes: most have no owners themselves
//     (TestTheGraphHasTheDependentsOfEveryOwner).
//   - byUID has the nodes by their own UIDs. It relies on one resource for each object: AllResources has one version of each resource.
//   - set and remove change all three maps under one lock. A node never changes: set replaces it, so callers may read a returned node, and
//     the owners of ownersOf, without the lock.
//   - Only the monitor of a resource sets its objects; syncMonitors also removes them when the resource is not served any more.
//   - The graph may be behind the stored objects, and each resource at a different version. It may lack dependents.
type graph struct {
	mu         sync.RWMutex
	nodes      map[object]*node
	byUID      map[owner]*node
	dependents map[owner]dependents
}

// dependents are the objects that refer to an owner. Most owners have one dependent, and an object may refer to thousands of owners: a map
// for each owner takes a kilobyte. Only one of the fields is set, and many is never empty.
type dependents struct {
	only *node
	many map[object]*node
}

func (d dependents) with(n *node) dependents {
	switch {
	case d.many != nil:
		d.many[n.object] = n
	case d.only == nil || d.only.object == n.object:
		d.only = n
	default:
		d = dependents{many: map[object]*node{d.only.object: d.only, n.object: n}}
	}
	return d
}

func (d dependents) without(o object) dependents {
	delete(d.many, o)
	if len(d.many) == 0 && (d.only == nil || d.only.object == o) {
		return dependents{}
	}
	return d
}

func (d dependents) list() []*node {
	list := make([]*node, 0, len(d.many)+1)
	if d.only != nil {
		list = append(list, d.only)
	}
	for _, n := range d.many {
		list = append(list, n)
	}
	return list
}

func newGraph() *graph {
	return &graph{nodes: map[object]*node{}, byUID: map[owner]*node{}, dependents: map[owner]dependents{}}
}

// isWaiting reports whether an object is being deleted and has a finalizer that the garbage collector removes.
func isWaiting(m metav1.Object) bool {
	return m.GetDeletionTimestamp() != nil &&
		(slices.Contains(m.GetFinalizers(), metav1.FinalizerDeleteDependents) ||
			slices.Contains(m.GetFinalizers(), metav1.FinalizerOrphanDependents))
}

// set brings the graph up to date with an object, and reports whether the object must be reconciled.
func (g *graph) set(o object, m metav1.Object) bool {
	references, waiting := m.GetOwnerReferences(), isWaiting(m)
	if len(references) == 0 && !waiting { // most objects
		g.remove(o)
		return false
	}
	n := &node{object: o, uid: m.GetUID()}
	for _, ref := range references {
		n.owners = append(n.owners, ref.UID)
		if ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
			n.blocks = append(n.blocks, ref.UID)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.nodes[o]
	g.unlink(old)
	g.nodes[o] = n
	g.byUID[owner{o.Cluster, n.uid}] = n
	for _, uid := range n.owners {
		key := owner{o.Cluster, uid}
		g.dependents[key] = g.dependents[key].with(n)
	}
	return old == nil || old.uid != n.uid || !slices.Equal(old.owners, n.owners) || waiting
}

// remove removes an object.
func (g *graph) remove(o object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unlink(g.nodes[o])
}

func (g *graph) unlink(n *node) {
	if n == nil {
		return
	}
	delete(g.nodes, n.object)
	delete(g.byUID, owner{n.Cluster, n.uid})
	for _, uid := range n.owners {
		key := owner{n.Cluster, uid}
		if left := g.dependents[key].without(n.object); left.only == nil && left.many == nil {
			delete(g.dependents, key)
		} else {
			g.dependents[key] = left
		}
	}
}

// dependentsOf returns the objects that refer to an owner.
func (g *graph) dependentsOf(key owner) []*node {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.dependents[key].list()
}

// ownersOf returns the owners of an object, if it is in the graph.
func (g *graph) ownersOf(o object) []types.UID {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if n := g.nodes[o]; n != nil {
		return n.owners
	}
	return nil
}

// of returns the objects of a resource.
func (g *graph) of(resource schema.GroupVersionResource) []object {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var list []object
	for o := range g.nodes {
		if o.Resource == resource {
			list = append(list, o)
		}
	}
	return list
}

// known returns those of the owners that are in the graph themselves.
func (g *graph) known(cluster logicalcluster.Name, uids []types.UID) []object {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var list []object
	for _, uid := range uids {
		if n := g.byUID[owner{cluster, uid}]; n != nil {
			list = append(list, n.object)
		}
	}
	return list
}
