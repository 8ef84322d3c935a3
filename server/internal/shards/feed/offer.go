package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Inputs of an Offer.
type Inputs struct {
	// Set has the objects of this shard.
	Set *informers.Set
	// Shard is the name of this shard.
	Shard string
	Cache *Client
	// Incarnation is the ID of the store of this shard.
	Incarnation string
	// Term returns a number that is higher than those of all former leaders of the same incarnation.
	Term func(context.Context) (uint64, error)
	// Versions reads the resource versions that the cluster of the context stores of a resource, by name, and the current one.
	Versions func(context.Context, schema.GroupResource) (map[string]uint64, uint64, error)
	// Dynamic reads the objects that ClusterCachedResources publish, in the cluster of each call's context. Objects are watched for their
	// changes.
	Dynamic dynamic.Interface
	Objects *runner.ObjectEvents
	// Stored stores the objects of the kinds with conditions, by resource.
	Stored  map[string]storage.Objects
	Limits  Limits
	Metrics *OfferMetrics
	Clock   clock.WithTicker
}

// Offer writes the global objects of this shard to the cache server, and keeps them equal. Only one process of a shard may run it.
//
// Each logical cluster is compared and written as a whole, by one worker at a time and in an order in which no reader is granted more than
// before or after: see write. The queue holds names of logical clusters. While the cache server does not respond it holds none of them,
// because everything is compared again as soon as it does.
type Offer struct {
	in         Inputs
	controller *runner.Controller
	cache      *Client
	neighbours *neighbours
	published  *Published
	pending    *pending
	woken      chan struct{}

	kinds                []*kind // without those of places
	clusters, workspaces *kind

	// comparing is held by every worker for reading, and for writing while the content of the cache server is read.
	comparing sync.RWMutex
	term      uint64 // guarded by comparing
	round     uint64 // guarded by comparing: the number of the last comparison
	// unsure is set when a write failed that the cache server may have made, or may make later. Then everything is read again, and the write
	// is refused from then on.
	unsure    atomic.Bool
	connected bool // guarded by comparing: known is what the cache server has
	// comparisons is the number of times that the content of the cache server was read; guarded by comparing.
	comparisons uint64

	mu    sync.Mutex // guards what follows
	tree  tree
	known map[logicalcluster.Name]*written
}

// written is what the cache server has of a logical cluster. The worker of the cluster owns the maps in it.
type written struct {
	objects map[id]*entry
	// offered and excess are the numbers of objects in the cache server, and over the limits. Offer.mu guards them.
	offered, excess int
}

// NewOffer returns an Offer, which does nothing until Run. The handlers that it adds to the informers end with the branch that Set is.
func NewOffer(in Inputs) *Offer {
	o := &Offer{
		in: in, cache: in.Cache, pending: newPending(in.Clock), woken: make(chan struct{}, 1), tree: newTree(),
		known: map[logicalcluster.Name]*written{},
	}
	o.kinds, o.clusters, o.workspaces = kindsOf(in.Set)
	o.controller = runner.New("feed-offer", workers, o.reconcile)
	o.controller.ExpectFailures()
	o.neighbours = newNeighbours(o)
	o.published = newPublished(o)
	in.Objects.AddHandler(o.published)
	return o
}

// workers is the number of logical clusters that are written at a time. Each is written by one worker, one object after the other.
const workers = 4

// Run offers objects until ctx ends.
func (o *Offer) Run(ctx context.Context) {
	for _, k := range o.kinds {
		k.informer.AddHandler(o.changed)
	}
	o.in.Set.LogicalClusters.AddHandler(o.placeChanged)
	o.in.Set.Workspaces.AddHandler(o.placeChanged)
	o.in.Metrics.follow(o)
	defer o.in.Metrics.follow(nil)
	o.controller.RunBeside(o.neighbours.run)
	o.published.follow()
	o.controller.RunBeside(o.follow)
	o.controller.RunBeside(o.published.controller.Run)
	o.controller.Run(ctx)
}

// Published returns what offers the objects that ClusterCachedResources publish. It runs with the Offer.
func (o *Offer) Published() *Published { return o.published }

func (o *Offer) enqueue(cluster logicalcluster.Name) {
	if cluster == "" || cluster.IsSystem() {
		return
	}
	o.pending.add(cluster)
	o.controller.Enqueue(informers.Key{Cluster: cluster})
}

// changed handles a change of content.
func (o *Offer) changed(old, obj runtime.Object) {
	for _, state := range []runtime.Object{old, obj} {
		if m, ok := state.(object); ok {
			o.enqueue(logicalcluster.Of(m))
			return // the cluster is the same
		}
	}
}

// placeChanged handles a change of a LogicalCluster or a Workspace. Most of them concern nothing that is offered.
func (o *Offer) placeChanged(old, obj runtime.Object) {
	for _, state := range []runtime.Object{old, obj} {
		switch m := state.(type) {
		case *corev1alpha1.LogicalCluster:
			if cluster := logicalcluster.Of(m); o.concerns(cluster) || (old == nil && o.hasContent(cluster)) {
				o.enqueue(cluster)
			}
		case *tenancyv1alpha1.Workspace:
			if o.hasChild(logicalcluster.Of(m), m.Name) {
				o.enqueue(logicalcluster.Of(m))
			}
		}
	}
}

func (o *Offer) concerns(cluster logicalcluster.Name) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tree.concerns(cluster) || o.known[cluster] != nil
}

// hasContent reports whether a cluster has objects of any kind that may be offered.
func (o *Offer) hasContent(cluster logicalcluster.Name) bool {
	for _, k := range o.kinds {
		if len(k.informer.Local(cluster)) > 0 {
			return true
		}
	}
	return false
}

// hasChild reports whether a carried logical cluster names a Workspace as its owner.
func (o *Offer) hasChild(cluster logicalcluster.Name, workspace string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range o.tree.children[cluster] {
		if name == workspace {
			return true
		}
	}
	return false
}

// knownOf returns what the cache server has of a cluster.
func (o *Offer) knownOf(cluster logicalcluster.Name) *written {
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := o.known[cluster]; k != nil {
		return k
	}
	return &written{objects: map[id]*entry{}}
}

// keep records what the cache server has of a cluster. A cluster without objects takes no memory.
func (o *Offer) keep(cluster logicalcluster.Name, k *written, excess int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if k.offered, k.excess = len(k.objects), excess; k.offered == 0 && k.excess == 0 {
		delete(o.known, cluster)
		return
	}
	o.known[cluster] = k
}

// count returns the number of objects in the cache server, and of those over the limits.
func (o *Offer) count() (offered, excess int) {
	offered, excess = o.published.total()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range o.known {
		offered += k.offered
		excess += k.excess
	}
	return offered, excess
}

// patience limits a request to the cache server that concerns one object.
const patience = 10 * time.Second
