package tree

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/budget"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// CallResolve is the name of the peer call that resolves a path at a shard.
const CallResolve = "resolve"

// readsPerSecond and readBurst limit the reads from storage that a peer causes, maxPeers the number of peers with a budget in memory.
const (
	readsPerSecond, readBurst = 1000, 2000
	maxPeers                  = 1024
)

// Question is what a peer wants to know of a shard.
type Question struct {
	// Path begins with the name of a logical cluster. The names of workspaces below it may follow, separated by colons.
	Path string `json:"path"`
	// Stored makes the shard read its storage even if the answer is in its memory: after a marker.
	Stored bool `json:"stored,omitempty"`
}

// Answer is what a shard knows of a path. If it has neither a Cluster nor a Shard, and the last edge is not a mount at the end of the path,
// there is no such workspace at Revision.
type Answer struct {
	// Incarnation and Revision are the state of the store that the answer has at least. It includes everything that was acknowledged before
	// the question.
	Incarnation string `json:"incarnation"`
	Revision    uint64 `json:"revision"`
	// Edges are those of the workspaces on the path whose parents this shard holds.
	Edges []Edge `json:"edges,omitempty"`
	// Cluster is the logical cluster at the end of the path, if this shard holds it.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Shard holds the next logical cluster on the path, and Rest is the question for it.
	Shard string `json:"shard,omitempty"`
	Rest  string `json:"rest,omitempty"`
}

// PlacesConfig is the configuration of Places.
type PlacesConfig struct {
	// Shard and Incarnation are those of this shard.
	Shard, Incarnation string
	Workspaces         informers.Lister[*tenancyv1alpha1.Workspace]
	Clusters           informers.Lister[*corev1alpha1.LogicalCluster]
	// StoredWorkspaces and StoredClusters read the storage.
	StoredWorkspaces, StoredClusters pathindex.Reader
	// Revision returns the current revision of the store.
	Revision func(context.Context) (uint64, error)
	// Holder returns the shard that holds a logical cluster.
	Holder func(logicalcluster.Name) (shard string, epoch uint64, known bool)
	// Fenced reports whether a logical cluster is moving to or from this shard, or else where it was moved to. It must be fast.
	Fenced func(logicalcluster.Name) (moving bool, to string, epoch uint64)
}

// Places knows which logical clusters this shard holds, for its peers.
//
// Invariants:
//   - What is not in memory, or not as the peer expects, is read from storage before it is denied. Nothing is denied from memory.
//   - A peer beyond its budget gets 429. Absence is never an answer to that.
type Places struct {
	config  PlacesConfig
	budgets *budget.Budgets // by peers.Identity
}

// NewPlaces returns the places of this shard.
func NewPlaces(config PlacesConfig) *Places {
	return &Places{config: config, budgets: budget.New(readsPerSecond, readBurst, maxPeers, clock.RealClock{})}
}

// Register adds the call to those of peers.
func (p *Places) Register(calls *peers.Server) {
	peers.Handle(calls, CallResolve, []peers.Kind{peers.Proxy, peers.Shard}, p.Resolve)
}

// Resolve answers a question of a peer.
func (p *Places) Resolve(ctx context.Context, caller peers.Identity, q Question) (Answer, error) {
	if !logicalcluster.ValidPath(q.Path) {
		return Answer{}, apierrors.NewBadRequest(
			"path: want the name of a logical cluster, and names of workspaces below it, separated by colons")
	}
	look := &look{Places: p, caller: caller, always: q.Stored, revision: min(p.config.Workspaces.Version(), p.config.Clusters.Version())}
	answer, err := look.resolve(ctx, q.Path)
	answer.Incarnation, answer.Revision = p.config.Incarnation, look.revision
	return answer, err
}

// look is the search for one answer.
type look struct {
	*Places
	caller peers.Identity
	// always reads the storage even if the informers have the object.
	always bool
	// revision is the one that the answer has at least. reading reports that it is that of the storage.
	revision uint64
	reading  bool
}

func (l *look) resolve(ctx context.Context, path string) (answer Answer, err error) {
	first, rest, more := strings.Cut(path, ":")
	cluster := logicalcluster.Name(first)
	if !more {
		answer.Cluster, err = l.cluster(ctx, cluster)
		if err == nil && answer.Cluster == nil {
			answer.Shard, answer.Rest = l.elsewhere(cluster, path)
		}
		return answer, err
	}
	for more {
		held, err := l.cluster(ctx, cluster)
		if err != nil {
			return Answer{}, err
		}
		if held == nil {
			answer.Shard, answer.Rest = l.elsewhere(cluster, string(cluster)+":"+rest)
			return answer, nil
		}
		var name string
		name, rest, more = strings.Cut(rest, ":")
		edge, err := l.edge(ctx, cluster, name)
		if err != nil || edge.Deleted {
			return answer, err
		}
		answer.Edges = append(answer.Edges, edge)
		if cluster = edge.Cluster; cluster == "" {
			return answer, nil
		}
		if edge.Shard != "" && edge.Shard != l.config.Shard {
			answer.Shard, answer.Rest = edge.Shard, strings.TrimSuffix(string(cluster)+":"+rest, ":")
			return answer, nil
		}
	}
	answer.Cluster, err = l.cluster(ctx, cluster)
	return answer, err
}

// elsewhere returns the other shard that holds a cluster, and the question for it, or nothing.
func (l *look) elsewhere(cluster logicalcluster.Name, path string) (shard, rest string) {
	if _, to, _ := l.config.Fenced(cluster); to != "" {
		return to, path
	}
	if shard, _, known := l.config.Holder(cluster); known && shard != l.config.Shard {
		return shard, path
	}
	return "", ""
}

// cluster returns a logical cluster that this shard holds, and nil if there is none.
func (l *look) cluster(ctx context.Context, name logicalcluster.Name) (*Cluster, error) {
	if _, to, _ := l.config.Fenced(name); to != "" {
		return nil, nil
	}
	if lc, err := l.config.Clusters.Get(name, "", corev1alpha1.LogicalClusterName); err == nil && !l.always {
		found := ClusterOf(lc)
		return &found, nil
	}
	lc := &corev1alpha1.LogicalCluster{}
	if ok, err := l.stored(ctx, l.config.StoredClusters, name, corev1alpha1.LogicalClusterName, lc); !ok || err != nil {
		return nil, err
	}
	found := ClusterOf(lc)
	found.Name = name
	return &found, nil
}

// edge returns the edge of a workspace, a deleted one if it has no place.
func (l *look) edge(ctx context.Context, parent logicalcluster.Name, name string) (Edge, error) {
	if ws, err := l.config.Workspaces.Get(parent, "", name); err == nil && !l.always {
		if e := EdgeOf(ws); !e.Deleted {
			return e, nil
		}
	}
	ws := &tenancyv1alpha1.Workspace{}
	if ok, err := l.stored(ctx, l.config.StoredWorkspaces, parent, name, ws); !ok || err != nil {
		return Edge{Deleted: true}, err
	}
	found := EdgeOf(ws)
	found.Parent, found.Name = parent, name
	return found, nil
}

// stored reads an object from storage, and reports whether it exists.
func (l *look) stored(ctx context.Context, from pathindex.Reader, in logicalcluster.Name, name string, out runtime.Object) (bool, error) {
	if !l.budgets.Allow(l.caller) {
		return false, apierrors.NewTooManyRequests("the questions of "+l.caller.String()+" read the storage of this shard too often", 1)
	}
	if !l.reading {
		revision, err := l.config.Revision(ctx)
		if err != nil {
			return false, apierrors.NewServiceUnavailable(err.Error())
		}
		l.revision, l.reading = revision, true
	}
	err := from.Get(logicalcluster.WithName(ctx, in), name, out)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Check returns nil if this shard holds a logical cluster as a proxy expects it, and otherwise the marker with which it refuses.
func (p *Places) Check(ctx context.Context, caller peers.Identity, e Expectation) (*Marker, error) {
	m := Marker{Shard: p.config.Shard, Incarnation: p.config.Incarnation}
	switch moving, to, epoch := p.config.Fenced(e.Cluster); {
	case moving:
		m.Verdict = Moving
		return &m, nil
	case to != "":
		m.Verdict, m.To, m.Epoch = Moved, to, epoch
		return &m, nil
	}
	if lc, err := p.config.Clusters.Get(e.Cluster, "", corev1alpha1.LogicalClusterName); err == nil && e.matches(ClusterOf(lc)) {
		return nil, nil
	}
	held, err := (&look{Places: p, caller: caller, always: true}).cluster(ctx, e.Cluster)
	if err != nil {
		return nil, err
	}
	if held != nil && e.matches(*held) {
		return nil, nil
	}
	m = p.marker(e, held)
	return &m, nil
}

func (e Expectation) matches(c Cluster) bool {
	return (e.UID == UID{} || e.UID == c.UID) && (e.Epoch == 0 || e.Epoch == c.Epoch)
}

// marker returns the marker for an expectation that differs from what this shard holds, if anything.
func (p *Places) marker(e Expectation, held *Cluster) Marker {
	m := Marker{Shard: p.config.Shard, Incarnation: p.config.Incarnation, Verdict: Never}
	shard, epoch, known := p.config.Holder(e.Cluster)
	switch {
	case held != nil && e.UID != UID{} && held.UID != e.UID:
		m.Verdict = Deleted
	case held != nil && held.Epoch > e.Epoch:
		m.Verdict, m.To, m.Epoch = Moved, p.config.Shard, held.Epoch
	case known && shard != p.config.Shard:
		m.Verdict, m.To, m.Epoch = Moved, shard, epoch
	}
	return m
}
