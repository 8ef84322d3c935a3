package placement

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// maxDepth limits how many ancestors of a cluster are followed. A path has at most logicalcluster.MaxPathLength bytes.
const maxDepth = logicalcluster.MaxPathLength / 2

// maxClaims limits how many different workspaces are considered of which shards say that they own one cluster.
const maxClaims = 8

// maxConsidered limits how many clusters one search considers.
const maxConsidered = maxDepth * maxClaims

// Holders finds the shards that hold clusters, from the LogicalClusters and Workspaces of this shard and of other shards.
//
// Invariants:
//   - Shard root holds root and clusters without a workspace that it offers or has: homes.
//   - For any other cluster, a LogicalCluster only says which Workspace may own it. The answer is the record of that Workspace, read from
//     the holder of its own cluster.
//   - What this shard has itself precedes the offers of others, and the offers of shard root precede those of other shards: no other shard
//     can take these clusters away by offering a LogicalCluster.
//   - If the records of two workspaces name a cluster, or one is missing or invalid, the holder is unknown.
type Holders struct {
	shard      string
	clusters   informers.Lister[*corev1alpha1.LogicalCluster]
	workspaces informers.Lister[*tenancyv1alpha1.Workspace]
}

// New returns the holders according to set, on a shard.
func New(set *informers.Set, shard string) *Holders {
	return &Holders{shard: shard, clusters: set.LogicalClusters, workspaces: set.Workspaces}
}

// Holder returns the shard that holds a cluster, and since which epoch. known is false if the records do not lead from root to the cluster,
// or contradict each other.
func (h *Holders) Holder(cluster logicalcluster.Name) (shard string, epoch uint64, known bool) {
	place := newClimb(h).to(cluster)
	return place.shard, place.epoch, place.known()
}

// Placement is an informers.Placement.
func (h *Holders) Placement(cluster logicalcluster.Name) (shard string, via []logicalcluster.Name) {
	c := newClimb(h)
	return c.to(cluster).shard, c.via
}

// place is the zero value if the holder is unknown.
type place struct {
	shard string
	epoch uint64
}

func (p place) known() bool { return p.shard != "" }

// climb is one search. Its clusters are those on the way from the first one, and via has all that it considered.
type climb struct {
	*Holders
	way []logicalcluster.Name
	via []logicalcluster.Name
	// done are the places that were found, so that no cluster is considered twice.
	done map[logicalcluster.Name]place
}

func newClimb(h *Holders) *climb { return &climb{Holders: h, done: map[logicalcluster.Name]place{}} }

func (c *climb) to(cluster logicalcluster.Name) place {
	if cluster == logicalcluster.Root {
		return place{shard: RootShard, epoch: 1}
	}
	if found, ok := c.done[cluster]; ok {
		return found
	}
	if slices.Contains(c.way, cluster) || len(c.way) == maxDepth || len(c.via) == maxConsidered {
		return place{}
	}
	c.via = append(c.via, cluster)
	c.way = append(c.way, cluster)
	defer func() { c.way = c.way[:len(c.way)-1] }()
	found := c.first(c.claims(cluster))
	c.done[cluster] = found
	return found
}

// first returns the place of the first group of claims that lead to one.
func (c *climb) first(groups [][]claim) place {
	all := slices.Concat(groups...)
	for _, claims := range groups {
		if found := c.one(claims, all); found.known() {
			return found
		}
	}
	return place{}
}

// claim is a LogicalCluster that a shard has.
type claim struct {
	shard string
	*corev1alpha1.LogicalCluster
}

// claims returns who has a LogicalCluster of a cluster, in groups of falling precedence.
func (h *Holders) claims(cluster logicalcluster.Name) [][]claim {
	var own, root, others []claim
	if lc, err := h.clusters.GetLocal(cluster, "", corev1alpha1.LogicalClusterName); err == nil {
		own = []claim{{h.shard, lc}}
	}
	for _, offer := range h.clusters.Offers(cluster) {
		if offer.Shard == RootShard {
			root = append(root, claim{offer.Shard, offer.Object})
		} else {
			others = append(others, claim{offer.Shard, offer.Object})
		}
	}
	return [][]claim{own, root, others}
}

// one returns the place that claims lead to, if they lead to one only. all are the claims of every group.
func (c *climb) one(claims, all []claim) place {
	var found place
	var followed []corev1alpha1.LogicalClusterOwner
	for _, from := range claims {
		owner := from.Spec.Owner
		if owner == nil {
			if from.shard == RootShard { // a home
				return place{shard: RootShard, epoch: 1}
			}
			continue
		}
		if slices.Contains(followed, *owner) {
			continue
		}
		if len(followed) == maxClaims {
			return place{}
		}
		followed = append(followed, *owner)
		there := c.recorded(from, all)
		switch {
		case !there.known():
		case found.known():
			return place{} // two workspaces have a record of one cluster
		default:
			found = there
		}
	}
	return found
}

// recorded returns the place in the record of the Workspace that a claim names.
func (c *climb) recorded(from claim, all []claim) place {
	owner, cluster := from.Spec.Owner, logicalcluster.Of(from)
	parent := c.to(logicalcluster.Name(owner.Cluster))
	if !parent.known() {
		return place{}
	}
	ws, ok := c.workspace(parent.shard, owner)
	if !ok || ws.UID != owner.UID {
		return place{}
	}
	record := Of(ws)
	if !record.Valid() || record.Cluster != cluster || !agree(record, all) {
		return place{}
	}
	return place{shard: record.Shard, epoch: record.Epoch}
}

func (c *climb) workspace(shard string, owner *corev1alpha1.LogicalClusterOwner) (*tenancyv1alpha1.Workspace, bool) {
	cluster := logicalcluster.Name(owner.Cluster)
	if shard == c.shard {
		ws, err := c.workspaces.GetLocal(cluster, "", owner.Name)
		return ws, err == nil
	}
	return c.workspaces.Offered(shard, cluster, owner.Name)
}

// agree reports whether what the shard in a record has is the LogicalCluster of the record.
func agree(record Record, claims []claim) bool {
	for _, other := range claims {
		if other.shard == record.Shard && (EpochOf(other.Annotations) != record.Epoch || differ(record.UID, other.UID)) {
			return false
		}
	}
	return true
}

func differ(recorded, uid types.UID) bool { return recorded != "" && recorded != uid }
