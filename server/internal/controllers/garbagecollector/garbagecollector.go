// Package garbagecollector deletes objects whose owners were deleted, in every logical cluster: in the background, in the foreground, or
// not at all where dependents are orphaned. One graph covers all clusters, and holds only objects that have owners or wait for dependents.
// One watch of metadata covers a resource of all clusters.
package garbagecollector

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
)

// settling is how long the collector waits at least after a change of the served resources. Many definitions often arrive together. Where
// there are so many that comparing them takes long, it waits for share times as long, so that it takes a tenth of a processor.
const (
	settling = 100 * time.Millisecond
	share    = 9
)

// listTimeout is how long objects that are being deleted wait after the start until every resource is listed.
const listTimeout = 30 * time.Second

const (
	// appearTimeout is how long objects that are being deleted wait for the list of a resource whose first object has appeared. It is short,
	// because tenants can make resources appear.
	appearTimeout = 2 * time.Second
	// appearRetry is the pause after an error of etcd.
	appearRetry = time.Second
)

// Resources describes the resources that are served on the shard and in one cluster.
type Resources interface {
	// AllResources returns the resources of all clusters.
	AllResources() []discovery.Resource
	// Served returns a resource in a version that the cluster of ctx serves.
	Served(ctx context.Context, resource schema.GroupVersionResource) (schema.GroupVersionResource, error)
	// RESTMapper maps the kinds that the cluster of ctx serves.
	RESTMapper(ctx context.Context) (meta.RESTMapper, error)
}

// Inputs of the controller. Clients reach the cluster, or all clusters, in each call's context.
type Inputs struct {
	Metadata  metadata.Interface
	Kube      kubernetes.Interface
	Resources Resources
	// ResourcesChanged receives a value after the served resources have changed.
	ResourcesChanged <-chan struct{}
	// Existing returns the informer of a resource if the server has one. The collector watches the other resources.
	Existing func(schema.GroupVersionResource) (*informers.Informer, bool)
	// Appears returns when an object of a resource is stored. It calls absent before it waits.
	Appears func(ctx context.Context, resource schema.GroupResource, absent func()) error
	// Objects passes on what the collector sees.
	Objects *runner.ObjectEvents
	Clock   clock.WithTicker
}

type collector struct {
	Inputs
	controller *runner.ObjectController
	graph      *graph

	lookups flowcontrol.PassiveRateLimiter
	deleted *lru.Cache // of nothing, by owner

	monitors map[schema.GroupVersionResource]context.CancelFunc // owned by runMonitors

	initial initialLists
}

// initialLists are the resources that the graph lacks since the start of the collector. Before it has all of them, the graph does not show
// every dependent, and an owner must not be released from them. Resources that are served later do not matter: tenants add them at any
// time. After listTimeout the graph counts as complete, as in Kubernetes: a resource that cannot be listed must not hold up all deletions.
// The graph also lacks a resource from its first object until it is listed.
type initialLists struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	began   time.Time // zero until the resources are known
	missing sets.Set[schema.GroupVersionResource]
	// appearing are the resources whose first object is stored, and since when.
	appearing map[schema.GroupVersionResource]time.Time
}

// begin sets the resources of the start.
func (i *initialLists) begin(resources sets.Set[schema.GroupVersionResource]) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.began.IsZero() {
		i.began, i.missing = i.clock.Now(), resources.Clone()
	}
}

// done removes a resource that is in the graph, or that is not served any more.
func (i *initialLists) done(r schema.GroupVersionResource) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.missing.Delete(r)
	delete(i.appearing, r)
}

// appeared adds a resource that is about to be listed.
func (i *initialLists) appeared(r schema.GroupVersionResource) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.appearing == nil {
		i.appearing = map[schema.GroupVersionResource]time.Time{}
	}
	i.appearing[r] = i.clock.Now()
}

func (i *initialLists) complete() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.appearing, func(_ schema.GroupVersionResource, since time.Time) bool {
		return i.clock.Since(since) >= appearTimeout
	})
	if len(i.appearing) > 0 {
		return false
	}
	return !i.began.IsZero() && (i.missing.Len() == 0 || i.clock.Since(i.began) >= listTimeout)
}

// New returns the controller. Its keys are objects of all resources.
func New(in Inputs) *runner.ObjectController { return newCollector(in).controller }

func newCollector(in Inputs) *collector {
	c := &collector{
		Inputs: in, graph: newGraph(),
		lookups:  flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(lookupRate, lookupBurst, in.Clock),
		deleted:  lru.New(rememberedOwners),
		monitors: map[schema.GroupVersionResource]context.CancelFunc{},
		initial:  initialLists{clock: in.Clock},
	}
	c.controller = runner.NewForObjects("garbagecollector", 10, c.reconcile)
	c.controller.ExpectFailures() // tenants may refuse any deletion
	c.controller.RunBeside(c.runMonitors)
	return c
}

// runMonitors watches the resources that are served, until ctx ends.
func (c *collector) runMonitors(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		began := c.Clock.Now()
		c.syncMonitors(ctx, &running)
		pause := max(settling, share*c.Clock.Since(began))
		select {
		case <-ctx.Done():
			return
		case <-c.ResourcesChanged:
			select {
			case <-c.Clock.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

// syncMonitors starts and stops monitors, one for each resource that is served.
func (c *collector) syncMonitors(ctx context.Context, running *sync.WaitGroup) {
	wanted := sets.New[schema.GroupVersionResource]()
	for _, r := range c.Resources.AllResources() {
		if r.Verbs.HasAll("list", "watch", "delete") && r.Resource != "events" {
			wanted.Insert(r.GroupVersionResource)
		}
	}
	c.initial.begin(wanted)
	for r, cancel := range c.monitors {
		if !wanted.Has(r) {
			c.initial.done(r)
			cancel()
			delete(c.monitors, r)
			for _, o := range c.graph.of(r) {
				c.graph.remove(o)
			}
			c.Objects.Relisted(r)
		}
	}
	for r := range wanted {
		if _, ok := c.monitors[r]; ok {
			continue
		}
		monitored, cancel := context.WithCancel(ctx)
		c.monitors[r] = cancel
		running.Go(func() { c.monitor(monitored, r) })
	}
}

// recheckAll enqueues every object. Deletions of owners that are not in the graph may have been missed while a watch was interrupted.
func (c *collector) recheckAll() {
	c.graph.mu.RLock()
	defer c.graph.mu.RUnlock()
	for o := range c.graph.nodes {
		c.controller.Enqueue(o)
	}
}
