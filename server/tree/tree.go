// Package tree knows where every workspace of the shard is: it resolves paths such as root:org:team to logical clusters
// in memory, fed by the watches of workspaces, without a scan.
package tree

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Place is what a path leads to: a logical cluster, or the URL of a mount.
type Place struct {
	Cluster logicalcluster.Name
	// URL of what is mounted here, as the Workspace Mounted; the cluster is empty then.
	URL     string
	Mounted informers.Key
	// Code is the HTTP status that requests get instead, zero if none: a workspace on the way is unavailable.
	Code int
}

// Tree is the index. The zero value is not usable: see New.
type Tree struct {
	clusters informers.Lister[*corev1alpha1.LogicalCluster]

	mu       sync.RWMutex
	children map[edge]Place
}

// edge leads from a logical cluster to a workspace in it.
type edge struct {
	parent logicalcluster.Name
	name   string
}

// New returns a tree that follows the workspaces and logical clusters of set.
func New(set *informers.Set) *Tree {
	t := &Tree{clusters: set.LogicalClusters, children: map[edge]Place{}}
	set.Workspaces.AddHandler(func(old, obj runtime.Object) {
		if obj == nil {
			t.remove(old.(*tenancyv1alpha1.Workspace))
			return
		}
		t.set(obj.(*tenancyv1alpha1.Workspace))
	})
	return t
}

func edgeOf(ws *tenancyv1alpha1.Workspace) edge {
	return edge{parent: logicalcluster.Of(ws), name: ws.Name}
}

func (t *Tree) remove(ws *tenancyv1alpha1.Workspace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.children, edgeOf(ws))
}

func (t *Tree) set(ws *tenancyv1alpha1.Workspace) {
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
	if ws.Status.Phase == corev1alpha1.LogicalClusterPhaseScheduling || (place == Place{}) {
		t.remove(ws)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.children[edgeOf(ws)] = place
}

// Lookup returns where a path leads. Its first part is the name of a logical cluster; user:<name> is the home of a user.
func (t *Tree) Lookup(path string) (Place, bool) {
	if rest, home := strings.CutPrefix(path, "user:"); home {
		name, below, deeper := strings.Cut(rest, ":")
		path = string(HomeCluster(name))
		if deeper {
			path += ":" + below
		}
	}
	first, rest, more := strings.Cut(path, ":")
	if _, err := t.clusters.Get(logicalcluster.Name(first), "", corev1alpha1.LogicalClusterName); err != nil {
		return Place{}, false
	}
	place := Place{Cluster: logicalcluster.Name(first)}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for more {
		var name string
		name, rest, more = strings.Cut(rest, ":")
		next, ok := t.children[edge{parent: place.Cluster, name: name}]
		if !ok {
			return Place{}, false
		}
		if next.Code == 0 {
			next.Code = place.Code // what is below an unavailable workspace is unavailable
		}
		place = next
		if place.Cluster == "" {
			return place, !more // what is mounted has no workspaces here, whatever it has where it comes from
		}
	}
	return place, true
}

// Has tells whether there is a workspace of that name in a logical cluster.
func (t *Tree) Has(parent logicalcluster.Name, name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.children[edge{parent: parent, name: name}]
	return ok
}

// Len is the number of workspaces in the tree.
func (t *Tree) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.children)
}

// Path returns the canonical path of a logical cluster, which is its name if it has none.
func (t *Tree) Path(cluster logicalcluster.Name) string {
	lc, err := t.clusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil || lc.Annotations[corev1alpha1.PathAnnotation] == "" {
		return string(cluster)
	}
	return lc.Annotations[corev1alpha1.PathAnnotation]
}

// Parent returns the logical cluster that the workspace of a cluster lives in; false for one that has no workspace.
func (t *Tree) Parent(cluster logicalcluster.Name) (logicalcluster.Name, bool) {
	lc, err := t.clusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil || lc.Spec.Owner == nil || lc.Spec.Owner.Cluster == "" {
		return "", false
	}
	return logicalcluster.Name(lc.Spec.Owner.Cluster), true
}

// homeWidth is the least length of the name of a home's logical cluster.
const homeWidth = 12

// HomeCluster is the logical cluster of a user's home workspace: a hash of their name, in base 36.
func HomeCluster(user string) logicalcluster.Name {
	sum := sha256.Sum224([]byte(user))
	name := strconv.FormatUint(binary.BigEndian.Uint64(sum[:8]), 36)
	return logicalcluster.Name(strings.Repeat("0", max(0, homeWidth-len(name))) + name)
}
