package feed

import (
	"cmp"
	"slices"
	"strings"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// neighbour is a logical cluster as a shard offers it.
type neighbour struct {
	shard   string
	cluster logicalcluster.Name
}

// parent is the Workspace that a LogicalCluster names as its owner.
type parent struct {
	cluster   logicalcluster.Name
	workspace string
}

func parentOf(lc *corev1alpha1.LogicalCluster) parent {
	owner := lc.Spec.Owner
	if owner == nil || owner.Resource != "workspaces" || owner.Namespace != "" {
		return parent{}
	}
	return parent{logicalcluster.Name(owner.Cluster), owner.Name}
}

// tree knows which logical clusters are carried: those that offer something, and their ancestors. It is guarded by Offer.mu.
type tree struct {
	// content are the clusters of this shard that offer something besides places.
	content map[logicalcluster.Name]bool
	// carried has the carried clusters of this shard, with the Workspaces that own them.
	carried map[logicalcluster.Name]parent
	// children has the names of the Workspaces that the carried clusters of all shards name as their owners, by the cluster of the Workspace.
	// Only a Workspace that agrees is offered.
	children map[logicalcluster.Name]map[neighbour]string
}

func newTree() tree {
	return tree{
		content: map[logicalcluster.Name]bool{}, carried: map[logicalcluster.Name]parent{},
		children: map[logicalcluster.Name]map[neighbour]string{},
	}
}

func (t *tree) link(p parent, of neighbour) {
	if p.cluster == "" {
		return // root and homes have no Workspace
	}
	if t.children[p.cluster] == nil {
		t.children[p.cluster] = map[neighbour]string{}
	}
	t.children[p.cluster][of] = p.workspace
}

func (t *tree) unlink(p parent, of neighbour) {
	below := t.children[p.cluster]
	if delete(below, of); len(below) == 0 {
		delete(t.children, p.cluster)
	}
}

// concerns reports whether the tree depends on a cluster.
func (t *tree) concerns(cluster logicalcluster.Name) bool {
	_, carried := t.carried[cluster]
	return carried || t.content[cluster] || len(t.children[cluster]) > 0
}

// placed is a LogicalCluster or a Workspace to offer.
type placed struct {
	kind   *kind
	object object
}

// place records whether a cluster of this shard offers content, and returns the places that it offers then: its LogicalCluster, and the
// Workspaces of its carried children. It returns nothing if the cluster is not carried.
func (o *Offer) place(cluster logicalcluster.Name, hasContent bool) []placed {
	o.mu.Lock()
	defer o.mu.Unlock()
	if hasContent {
		o.tree.content[cluster] = true
	} else {
		delete(o.tree.content, cluster)
	}
	o.carry(cluster)
	if _, ok := o.tree.carried[cluster]; !ok {
		return nil
	}
	lc, err := o.in.Set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return nil
	}
	places := []placed{{o.clusters, lc}}
	for _, ws := range o.edges(cluster) {
		places = append(places, placed{o.workspaces, ws})
	}
	return places
}

// carry decides whether a cluster is carried, and goes on with its parent if that has changed; o.mu is held. The parent is reconciled then.
func (o *Offer) carry(cluster logicalcluster.Name) {
	for {
		before, was := o.tree.carried[cluster]
		after, is := parent{}, false
		if lc, err := o.in.Set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName); err == nil {
			after, is = parentOf(lc), o.tree.content[cluster] || len(o.edges(cluster)) > 0
		}
		if was == is && (!is || before == after) {
			return
		}
		if was {
			delete(o.tree.carried, cluster)
			o.tree.unlink(before, neighbour{o.in.Shard, cluster})
			o.enqueue(before.cluster)
		}
		if is {
			o.tree.carried[cluster] = after
			o.tree.link(after, neighbour{o.in.Shard, cluster})
		}
		o.enqueue(cluster)
		if was && before.cluster != after.cluster && is {
			o.carry(before.cluster) // rarely: the owner has changed
		}
		if cluster = cmp.Or(after.cluster, before.cluster); cluster == "" {
			return
		}
		o.enqueue(cluster)
	}
}

// edges returns the Workspaces of a cluster whose logical clusters are carried, in the order of their names; o.mu is held. The record of
// the Workspace decides: what the child says is only where to look.
func (o *Offer) edges(cluster logicalcluster.Name) []*tenancyv1alpha1.Workspace {
	var found []*tenancyv1alpha1.Workspace
	for of, name := range o.tree.children[cluster] {
		ws, err := o.in.Set.Workspaces.Get(cluster, "", name)
		if err != nil || isGone(ws) || ws.Spec.Cluster != string(of.cluster) {
			continue
		}
		if cmp.Or(ws.Annotations[tenancyv1alpha1.ShardAnnotation], o.in.Shard) == of.shard {
			found = append(found, ws)
		}
	}
	slices.SortFunc(found, func(a, b *tenancyv1alpha1.Workspace) int { return strings.Compare(a.Name, b.Name) })
	return found
}
