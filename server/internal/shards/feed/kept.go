package feed

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// settleDelay is how long changes are collected before what is kept is decided again, and retryDelay how long a failed write waits.
const settleDelay, retryDelay = 200 * time.Millisecond, 5 * time.Second

// KeptStore stores copies of objects of other shards. storage.Kept does.
type KeptStore interface {
	All(ctx context.Context, each func(name string, value []byte)) error
	Put(ctx context.Context, name string, value []byte) error
	Delete(ctx context.Context, name string) error
}

// KeptInputs are the inputs of Kept.
type KeptInputs struct {
	Set       *informers.Set
	Elsewhere *informers.Elsewhere
	Reader    *Reader
	Exports   *exports.Exports
	Tree      *pathindex.Index
	Store     KeptStore
	// Shards returns the names of all shards, this one included. Ask asks one about an export.
	Shards func() []string
	Ask    func(ctx context.Context, shard string, export informers.Key) (ExportAnswer, error)
	Clock  clock.Clock
}

// Kept stores what this shard enforces for others: the objects of clusters of other shards on which something here depends. After a
// restart, the shard enforces the same without them and without the cache server.
//
// Invariants:
//   - Load is complete before the first request, and before the leader writes.
//   - What is stored is removed when nothing here depends on its cluster, when another shard holds the cluster, or when its shard has
//     deleted it. While the holder of a stored cluster is not known, what it refers to is not known either, and nothing is removed because
//     of that.
//   - An export is stored after everything that limits its consumers, and removed before that: an export that is stored is complete.
type Kept struct {
	in    KeptInputs
	kinds []keptKind
	woken chan struct{}
	dirty chan struct{} // for the leader

	deciding sync.Mutex // held by decide, so that no decision replaces a later one

	mu sync.Mutex // guards what follows
	// providers and types count the bindings, and the logical clusters, of this shard that depend on a cluster, and bound the bindings that
	// have found an export.
	providers, types map[logicalcluster.Name]int
	bound            map[informers.Key]int
	needed           map[logicalcluster.Name]bool
	exports          boundExports
	// size is the number of stored objects, if this process is the leader.
	size int
}

// NewKept returns Kept, which does nothing until Load. The informers must not run yet.
func NewKept(in KeptInputs) *Kept {
	k := &Kept{
		in: in, kinds: keptKinds(in.Elsewhere.Informers()), woken: make(chan struct{}, 1), dirty: make(chan struct{}, 1),
		providers: map[logicalcluster.Name]int{}, types: map[logicalcluster.Name]int{}, bound: map[informers.Key]int{},
		needed: map[logicalcluster.Name]bool{}, exports: newBoundExports(),
	}
	in.Set.APIBindings.AddHandler(func(old, obj runtime.Object) {
		before, now := exportOf(old), exportOf(obj)
		count(k, k.providers, before.Cluster, now.Cluster)
		count(k, k.bound, before, now)
	})
	in.Set.LogicalClusters.AddHandler(func(old, obj runtime.Object) {
		count(k, k.types, typeClusterOf(old), typeClusterOf(obj))
		if obj == nil && k.isProvider(logicalcluster.Of(old.(*corev1alpha1.LogicalCluster))) {
			k.wake() // another shard has it now, or none
		}
	})
	in.Elsewhere.OnChange(func(cluster logicalcluster.Name) {
		in.Reader.schemas.changed(cluster)
		k.wake()
	})
	return k
}

// exportOf returns the export that a binding has found.
func exportOf(obj runtime.Object) informers.Key {
	b, ok := obj.(*apisv1alpha2.APIBinding)
	if !ok || b == nil || b.Spec.Reference.Export == nil || b.Status.APIExportClusterName == "" {
		return informers.Key{}
	}
	return informers.Key{Cluster: logicalcluster.Name(b.Status.APIExportClusterName), Name: b.Spec.Reference.Export.Name}
}

// typeClusterOf returns the cluster of the type of a logical cluster; empty for root.
func typeClusterOf(obj runtime.Object) logicalcluster.Name {
	lc, ok := obj.(*corev1alpha1.LogicalCluster)
	if !ok || lc == nil {
		return ""
	}
	return logicalcluster.Name(lc.Annotations[tenancyv1alpha1.TypeClusterAnnotation])
}

func (k *Kept) isProvider(cluster logicalcluster.Name) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.providers[cluster] > 0
}

// count replaces one dependency by another. The zero value is none.
func count[K comparable](k *Kept, counts map[K]int, old, now K) {
	var none K
	if old == now {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if old != none {
		if counts[old]--; counts[old] == 0 {
			delete(counts, old)
			k.wake()
		}
	}
	if now != none {
		if counts[now]++; counts[now] == 1 {
			k.wake()
		}
	}
}

func (k *Kept) wake() { signal(k.woken) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Follow decides again what is needed, whenever that may have changed, until ctx ends. Every process of the shard runs it.
func (k *Kept) Follow(ctx context.Context) {
	if !k.synced(ctx) {
		return
	}
	for {
		k.decide()
		var again <-chan time.Time
		if k.ask(ctx) {
			again = k.in.Clock.After(askInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-k.woken:
		case <-again:
		}
		if !k.pause(ctx, settleDelay) {
			return
		}
	}
}

func (k *Kept) decide() {
	k.deciding.Lock()
	defer k.deciding.Unlock()
	needed := needed(k.roots(), k.in.Reader.Here, k.parents, k.references)
	k.mu.Lock()
	k.needed = needed
	k.decideExports()
	k.mu.Unlock()
	k.in.Reader.schemas.need(needed)
	signal(k.dirty)
}

// roots returns the clusters that objects of this shard name.
func (k *Kept) roots() []logicalcluster.Name {
	k.mu.Lock()
	defer k.mu.Unlock()
	roots := []logicalcluster.Name{logicalcluster.Root} // has the types and exports of every installation
	for _, counts := range []map[logicalcluster.Name]int{k.providers, k.types} {
		for cluster := range counts {
			roots = append(roots, cluster)
		}
	}
	return roots
}

// parents returns the clusters that any shard names as the parent of a cluster.
func (k *Kept) parents(cluster logicalcluster.Name) []logicalcluster.Name {
	var found []logicalcluster.Name
	for _, offer := range k.in.Set.LogicalClusters.Offers(cluster) {
		if owner := offer.Object.Spec.Owner; owner != nil && owner.Cluster != "" {
			found = append(found, logicalcluster.Name(owner.Cluster))
		}
	}
	return found
}

// references returns the clusters that objects of a cluster name: of the types that its types extend, and of the exports that its exports
// claim resources of.
func (k *Kept) references(cluster logicalcluster.Name) []logicalcluster.Name {
	var found []logicalcluster.Name
	add := func(path string) {
		if path == "" {
			return
		}
		if place, ok := k.in.Tree.Anywhere(path); ok && place.Cluster != "" {
			found = append(found, place.Cluster)
		}
	}
	types, _ := k.in.Set.WorkspaceTypes.List(cluster) // the index exists
	for _, of := range types {
		for _, extended := range of.Spec.Extend.With {
			add(extended.Path)
		}
	}
	shown, _ := k.in.Set.ClusterCachedResourceEndpointSlices.List(cluster)
	for _, slice := range shown {
		add(slice.Spec.ClusterCachedResource.Path)
	}
	offered, _ := k.in.Set.APIExports.List(cluster)
	for _, export := range offered {
		for _, claim := range export.Spec.PermissionClaims {
			if claim.IdentityHash == "" {
				continue
			}
			for _, claimed := range k.in.Exports.WithIdentity(claim.IdentityHash) {
				found = append(found, logicalcluster.Of(claimed))
			}
		}
	}
	return found
}

// needed returns the clusters of other shards that something here depends on: the roots, what their objects refer to, and the ancestors of
// these clusters.
func needed(roots []logicalcluster.Name, here func(logicalcluster.Name) bool,
	parents, references func(logicalcluster.Name) []logicalcluster.Name) map[logicalcluster.Name]bool {
	result, seen := map[logicalcluster.Name]bool{}, map[logicalcluster.Name]bool{}
	for open := roots; len(open) > 0; {
		cluster := open[len(open)-1]
		open = open[:len(open)-1]
		if seen[cluster] {
			continue
		}
		seen[cluster] = true
		open = append(open, references(cluster)...)
		if here(cluster) {
			continue
		}
		result[cluster] = true
		open = append(open, parents(cluster)...)
	}
	return result
}

// synced waits for what this shard has: before that, nothing seems to be needed. It returns false if ctx ends first.
func (k *Kept) synced(ctx context.Context) bool {
	for _, i := range []*informers.Informer{k.in.Set.APIBindings.Informer, k.in.Set.LogicalClusters.Informer} {
		select {
		case <-i.Synced():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Run stores what is needed until ctx ends. Only the leader of the shard runs it.
func (k *Kept) Run(ctx context.Context) {
	if !k.synced(ctx) {
		return
	}
	k.decide()
	defer k.resize(0)
	var stored map[string]keptState
	for ctx.Err() == nil {
		var err error
		if stored == nil {
			stored, err = k.readStates(ctx)
		}
		if err == nil {
			err = k.write(ctx, stored)
		}
		if err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Storing the objects of other shards that this shard depends on failed, will retry",
					decisionlog.Controller, "kept")
			}
			stored = nil
			k.pause(ctx, retryDelay)
			continue
		}
		select {
		case <-ctx.Done():
		case <-k.dirty:
		}
	}
}

func (k *Kept) resize(size int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.size = size
}

func (k *Kept) stored() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.size
}

// pause waits, and returns false if ctx ends first.
func (k *Kept) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-k.in.Clock.After(d):
		return true
	}
}
