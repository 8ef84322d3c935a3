// Package pathindex resolves paths of workspaces such as root:org:team to logical clusters. It reads the informers of
// workspaces in memory, without a scan.
package pathindex

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Place is the target of a path: a logical cluster, or the URL of a mount.
type Place struct {
	Cluster logicalcluster.Name
	// URL of the server that the Workspace Mounted mounts; the cluster is empty then.
	URL     string
	Mounted informers.Key
	// Shard is the one that the last workspace on the path records for the cluster; empty if it records none.
	Shard string
	// Code is the HTTP status for requests if a workspace on the path is unavailable; zero otherwise.
	Code int
}

// Index is the index. It reads the informers, which find every object by its logical cluster and name.
//
// Invariants:
//   - It stores nothing. Every Lookup goes from workspace to workspace in the informers, so a change applies to all paths with its event.
//   - A place has a cluster or a URL, never both. A place without both has a code: its workspace is unavailable.
//   - A path ends at a mount: nothing below it resolves, whatever the mounted server has.
//   - A workspace that is being scheduled has no place. Below an unavailable workspace, every place has a code.
//   - Lookup finds the LogicalCluster of the first part only. The LogicalCluster at the end may be missing in the informers: see Stored.
//
// TestAPathIsResolvedThroughTheWorkspaces has examples.
type Index struct {
	clusters   informers.Lister[*corev1alpha1.LogicalCluster]
	workspaces informers.Lister[*tenancyv1alpha1.Workspace]
}

// New returns an index of the workspaces and logical clusters of set.
func New(set *informers.Set) *Index {
	return &Index{clusters: set.LogicalClusters, workspaces: set.Workspaces}
}

// child returns the place of a workspace; false if the workspace does not exist, or has no place yet.
func (t *Index) child(parent logicalcluster.Name, name string) (Place, bool) {
	return placeOf(t.workspaces.Get(parent, "", name))
}

func (t *Index) childAnywhere(parent logicalcluster.Name, name string) (Place, bool) {
	return placeOf(t.workspaces.GetAnywhere(parent, "", name))
}

func placeOf(ws *tenancyv1alpha1.Workspace, err error) (Place, bool) {
	if err != nil || ws.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling {
		return Place{}, false
	}
	place := Place{Cluster: logicalcluster.Name(ws.Spec.Cluster)}
	if ws.Spec.Mount != nil {
		place = Place{URL: ws.Spec.URL}
		if place.URL != "" {
			place.Mounted = informers.Key{Cluster: logicalcluster.Of(ws), Name: ws.Name}
		}
	}
	if ws.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable {
		place.Code = http.StatusServiceUnavailable
	}
	if place == (Place{}) {
		return place, false
	}
	if place.Cluster != "" {
		place.Shard = ws.Annotations[tenancyv1alpha1.ShardAnnotation]
	}
	return place, true
}

// canonical returns a path in the form that begins with a logical cluster.
func canonical(path string) string {
	rest, home := strings.CutPrefix(path, "user:")
	if !home {
		return path
	}
	name, below, deeper := strings.Cut(rest, ":")
	path = string(HomeCluster(name))
	if deeper {
		path += ":" + below
	}
	return path
}

// Lookup resolves a path through the workspaces of this shard. Its first part is the name of a logical cluster of this shard; user:<name>
// is the home of a user. Requests are served at the place of their path, so it never uses what other shards offer.
func (t *Index) Lookup(path string) (Place, bool) {
	first, rest, more := strings.Cut(canonical(path), ":")
	if !t.clusters.Has(logicalcluster.Name(first), "", corev1alpha1.LogicalClusterName) {
		return Place{}, false
	}
	return descend(logicalcluster.Name(first), rest, more, t.child)
}

// Anywhere is Lookup through the workspaces of all shards, for references in objects. It finds the clusters that have objects which other
// shards can read, by the records of where clusters are, and never by an annotation with a path.
func (t *Index) Anywhere(path string) (Place, bool) {
	first, rest, more := strings.Cut(canonical(path), ":")
	cluster := logicalcluster.Name(first)
	if _, err := t.clusters.GetAnywhere(cluster, "", corev1alpha1.LogicalClusterName); err != nil {
		return Place{}, false
	}
	return descend(cluster, rest, more, t.childAnywhere)
}

// Is reports whether a path, or the name of a logical cluster, leads to a logical cluster. As in Anywhere, the annotation with a path that
// a cluster of another shard has does not count.
func (t *Index) Is(path string, cluster logicalcluster.Name) bool {
	if path == string(cluster) {
		return true
	}
	place, ok := t.Anywhere(path)
	return ok && place.Cluster == cluster && cluster != ""
}

// From is Anywhere for a path in an object of a cluster. It finds the cluster by its own path, and what is below it, also while this shard
// has not read the clusters above it.
func (t *Index) From(cluster logicalcluster.Name, path string) (Place, bool) {
	return t.Anywhere(t.Relative(cluster, path))
}

// Relative returns a path in an object of a cluster, beginning with the name of the cluster if this shard holds it and the path leads
// there. The first part of the result is the name of a logical cluster in any case.
func (t *Index) Relative(cluster logicalcluster.Name, path string) string {
	lc, err := t.clusters.GetLocal(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return canonical(path)
	}
	own := lc.Annotations[corev1alpha1.PathAnnotation]
	if below, ok := strings.CutPrefix(path, own); ok && own != "" && (below == "" || below[0] == ':') {
		return string(cluster) + below
	}
	return canonical(path)
}

// descend resolves the rest of a path from a cluster.
func descend(from logicalcluster.Name, rest string, more bool, child func(logicalcluster.Name, string) (Place, bool)) (Place, bool) {
	place := Place{Cluster: from}
	for more {
		var name string
		name, rest, more = strings.Cut(rest, ":")
		next, ok := child(place.Cluster, name)
		if !ok {
			return Place{}, false
		}
		if next.Code == 0 {
			next.Code = place.Code // workspaces below an unavailable workspace are unavailable
		}
		place = next
		if place.Cluster == "" {
			return place, !more
		}
	}
	return place, true
}

// Current waits until Lookup of a path sees every workspace on it that this server has acknowledged.
func (t *Index) Current(ctx context.Context, path string) {
	first, rest, more := strings.Cut(canonical(path), ":")
	cluster := logicalcluster.Name(first)
	t.clusters.Current(ctx, cluster)
	for more {
		var name string
		name, rest, more = strings.Cut(rest, ":")
		t.workspaces.Current(ctx, cluster)
		next, ok := t.child(cluster, name)
		if !ok || next.Cluster == "" {
			return
		}
		cluster = next.Cluster
		t.clusters.Current(ctx, cluster)
	}
}

// Path returns the canonical path of a logical cluster, which is its name if it has none.
func (t *Index) Path(cluster logicalcluster.Name) string {
	lc, err := t.clusters.GetAnywhere(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil || lc.Annotations[corev1alpha1.PathAnnotation] == "" {
		return string(cluster)
	}
	return lc.Annotations[corev1alpha1.PathAnnotation]
}

// Parent returns the logical cluster that contains the workspace of a cluster; false for a cluster without a
// workspace, and for a home: the cluster of its Workspace has no meaning for tenants.
func (t *Index) Parent(cluster logicalcluster.Name) (logicalcluster.Name, bool) {
	lc, err := t.clusters.GetAnywhere(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil || lc.Spec.Owner == nil || lc.Spec.Owner.Cluster == "" || lc.Spec.Owner.Cluster == string(logicalcluster.Homes) {
		return "", false
	}
	return logicalcluster.Name(lc.Spec.Owner.Cluster), true
}

// maxAncestors limits how many ancestors of a cluster are followed. A path has at most logicalcluster.MaxPathLength bytes.
const maxAncestors = logicalcluster.MaxPathLength / 2

// Ancestors returns the logical clusters above one of this shard, from the outermost to the parent. false means that they are not known:
// one of them moved to another shard, or does not exist.
func (t *Index) Ancestors(cluster logicalcluster.Name) ([]logicalcluster.Name, bool) {
	var above []logicalcluster.Name
	for len(above) < maxAncestors {
		lc, err := t.clusters.GetAnywhere(cluster, "", corev1alpha1.LogicalClusterName)
		if err != nil {
			return nil, false
		}
		if recorded := lc.Annotations[tenancyv1alpha1.AncestorsAnnotation]; recorded != "" {
			for _, name := range slices.Backward(strings.Split(recorded, ",")) {
				above = append(above, logicalcluster.Name(name))
			}
			break
		}
		if lc.Spec.Owner == nil || lc.Spec.Owner.Cluster == "" {
			break
		}
		cluster = logicalcluster.Name(lc.Spec.Owner.Cluster)
		above = append(above, cluster)
	}
	slices.Reverse(above)
	return above, len(above) < maxAncestors
}

// homeWidth is the minimum length of the name of a home's logical cluster.
const homeWidth = 12

// HomeCluster returns the logical cluster of a user's home workspace: a hash of their name, in base 36.
func HomeCluster(user string) logicalcluster.Name {
	sum := sha256.Sum224([]byte(user))
	name := strconv.FormatUint(binary.BigEndian.Uint64(sum[:8]), 36)
	return logicalcluster.Name(strings.Repeat("0", max(0, homeWidth-len(name))) + name)
}

// HomePath returns the path of a user's home: user:<name>, or the name of its logical cluster if user:<name> would be invalid or the path
// of a workspace in the home of another user.
func HomePath(user string) string {
	if path := "user:" + user; logicalcluster.ValidPath(path) && !strings.Contains(user, ":") {
		return path
	}
	return string(HomeCluster(user))
}
