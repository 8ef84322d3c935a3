package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// neighbours follows the LogicalClusters that other shards offer. This shard offers the Workspaces of those that it has, so that every
// shard can resolve where they are. What other shards say is only where to look: see Offer.edges.
//
// It reads the cache server itself, and not what readers accept: these accept a cluster only after its Workspace is offered.
type neighbours struct {
	offer    *Offer
	complete atomic.Bool
	// parents has the parent of each LogicalCluster, by shard and cluster. Only the reflector uses it.
	parents map[neighbour]parent
}

func newNeighbours(o *Offer) *neighbours {
	return &neighbours{offer: o, parents: map[neighbour]parent{}}
}

// isComplete reports whether every LogicalCluster has been read once.
func (n *neighbours) isComplete() bool { return n.complete.Load() }

// run follows the cache server until ctx ends.
func (n *neighbours) run(ctx context.Context) {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &corev1alpha1.LogicalClusterList{}
			data, err := n.offer.cache.ofAllShards(n.offer.clusters.resource, options).Do(ctx).Raw()
			if err == nil {
				err = json.Unmarshal(data, list)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return n.offer.cache.ofAllShards(n.offer.clusters.resource, options).Watch(ctx)
		},
	}
	cache.NewReflectorWithOptions(informers.PagedList{ListerWatcher: source}, &corev1alpha1.LogicalCluster{}, n,
		cache.ReflectorOptions{Name: "feed-offer/neighbours"}).RunWithContext(ctx)
}

// Add implements cache.ReflectorStore.
func (n *neighbours) Add(obj any) error { return n.set(obj) }

// Update implements cache.ReflectorStore.
func (n *neighbours) Update(obj any) error { return n.set(obj) }

// Resync implements cache.ReflectorStore.
func (n *neighbours) Resync() error { return nil }

func (n *neighbours) set(obj any) error {
	lc, ok := obj.(*corev1alpha1.LogicalCluster)
	if !ok {
		return fmt.Errorf("expected a LogicalCluster, got %T", obj)
	}
	if of, ok := n.keyOf(lc); ok {
		n.change(of, parentOf(lc))
	}
	return nil
}

// keyOf returns the key of a LogicalCluster, and false for those that concern nothing: this shard's own, and roots of trees.
func (n *neighbours) keyOf(lc *corev1alpha1.LogicalCluster) (neighbour, bool) {
	of := neighbour{lc.Annotations[cacheserver.Shard], logicalcluster.Of(lc)}
	return of, of.shard != "" && of.shard != n.offer.in.Shard && of.cluster != ""
}

// Delete implements cache.ReflectorStore.
func (n *neighbours) Delete(obj any) error {
	if lc, ok := obj.(*corev1alpha1.LogicalCluster); ok {
		if of, ok := n.keyOf(lc); ok {
			n.change(of, parent{})
		}
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (n *neighbours) Replace(objs []any, _ string) error {
	gone := make(map[neighbour]bool, len(n.parents))
	for of := range n.parents {
		gone[of] = true
	}
	for _, obj := range objs {
		if err := n.set(obj); err != nil {
			return err
		}
		if lc, ok := obj.(*corev1alpha1.LogicalCluster); ok {
			of, _ := n.keyOf(lc)
			delete(gone, of)
		}
	}
	for of := range gone {
		n.change(of, parent{})
	}
	if n.complete.CompareAndSwap(false, true) {
		n.offer.enqueueKnown()
	}
	return nil
}

// change records the parent of a cluster of another shard; it is empty if the shard no longer offers the cluster.
func (n *neighbours) change(of neighbour, to parent) {
	from := n.parents[of]
	if from == to {
		return
	}
	if n.parents[of] = to; to.cluster == "" {
		delete(n.parents, of)
	}
	n.offer.relink(of, from, to)
}

// relink records the parent of a cluster of another shard, and decides whether its former and its new parent are carried.
func (o *Offer) relink(of neighbour, from, to parent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tree.unlink(from, of)
	o.tree.link(to, of)
	for _, p := range []parent{from, to} {
		if p.cluster != "" {
			o.carry(p.cluster)
			o.enqueue(p.cluster)
		}
	}
}

// enqueueKnown reconciles every cluster of which the cache server has objects.
func (o *Offer) enqueueKnown() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for cluster := range o.known {
		o.enqueue(cluster)
	}
}
