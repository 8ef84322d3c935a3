// Package garbagecollector deletes objects whose owners are gone, in every logical cluster: in the background, in the
// foreground, or not at all where dependents are orphaned. One graph covers all clusters, and holds only objects that
// have owners or wait for dependents; one watch of metadata covers a resource of all clusters.
package garbagecollector

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const workers = 10

// Resources tells what is served: anywhere on the shard, in one cluster, and how the kinds of that map to resources.
type Resources interface {
	AllResources() []discovery.Resource
	Served(ctx context.Context, resource schema.GroupVersionResource) (schema.GroupVersionResource, error)
	RESTMapper(ctx context.Context) (meta.RESTMapper, error)
}

// Collector is the controller.
type Collector struct {
	metadata  metadata.Interface
	kube      kubernetes.Interface
	resources Resources
	graph     *graph
	queue     workqueue.TypedRateLimitingInterface[object]
	changed   chan struct{}

	observers []Observer
	mirrored  func(schema.GroupVersionResource) (*informers.Informer, bool)

	lookups flowcontrol.PassiveRateLimiter
	deleted *lru.Cache // of nothing, by owner

	monitors map[schema.GroupVersionResource]context.CancelFunc // owned by Run
	running  sync.WaitGroup
}

// Observer is told of what the collector sees of the objects of all resources, whoever owns them, so that nobody has to
// watch them a second time. It must not block.
type Observer interface {
	// Changed is called for an object that is there, or has changed.
	Changed(resource schema.GroupVersionResource, obj metav1.Object)
	// Deleted is called for an object that is gone.
	Deleted(resource schema.GroupVersionResource, obj metav1.Object)
	// Relisted is called after a watch was broken, or has ended: objects may have gone before that.
	Relisted(resource schema.GroupVersionResource)
}

// New returns a collector. Its clients reach the cluster, or all clusters, in each call's context. mirrored returns the
// informer that the process has of a resource anyway: only the others are watched.
func New(client metadata.Interface, kube kubernetes.Interface, resources Resources,
	mirrored func(schema.GroupVersionResource) (*informers.Informer, bool), observers ...Observer) *Collector {
	return &Collector{
		metadata: client, kube: kube, resources: resources, graph: newGraph(), observers: observers, mirrored: mirrored,
		queue: runner.NewQueue("garbagecollector",
			workqueue.NewTypedItemExponentialFailureRateLimiter[object](5*time.Millisecond, time.Minute), clusterOf),
		changed:  make(chan struct{}, 1),
		lookups:  flowcontrol.NewTokenBucketPassiveRateLimiter(lookupRate, lookupBurst),
		deleted:  lru.New(rememberedOwners),
		monitors: map[schema.GroupVersionResource]context.CancelFunc{},
	}
}

// ResourcesChanged tells the collector that what is served has changed. It does not block.
func (c *Collector) ResourcesChanged() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	c.running.Go(func() { runner.Work(ctx, c.queue, workers, clusterOf, c.try) })
	for {
		c.syncMonitors(ctx)
		select {
		case <-ctx.Done():
			c.running.Wait()
			return
		case <-c.changed:
			// Many definitions often arrive together; look once.
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// syncMonitors watches what is served, and nothing else.
func (c *Collector) syncMonitors(ctx context.Context) {
	wanted := sets.New[schema.GroupVersionResource]()
	for _, r := range c.resources.AllResources() {
		if r.Verbs.HasAll("list", "watch", "delete") && r.Resource != "events" {
			wanted.Insert(r.GroupVersionResource)
		}
	}
	for r, cancel := range c.monitors {
		if !wanted.Has(r) {
			cancel()
			delete(c.monitors, r)
			for _, o := range c.graph.of(r) {
				c.graph.remove(o)
			}
			c.relisted(r)
		}
	}
	for r := range wanted {
		if _, ok := c.monitors[r]; ok {
			continue
		}
		monitored, cancel := context.WithCancel(ctx)
		c.monitors[r] = cancel
		c.running.Go(func() { c.monitor(monitored, r) })
	}
}

// monitor follows the metadata of one resource of all clusters.
func (c *Collector) monitor(ctx context.Context, r schema.GroupVersionResource) {
	store := &monitorStore{collector: c, resource: r}
	if informer, ok := c.mirrored(r); ok {
		branch, end := informer.Branch()
		defer end()
		branch.AddHandler(store.changed)
		<-ctx.Done()
		return
	}
	client := c.metadata.Resource(r)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(logicalcluster.WithWildcard(ctx), options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(logicalcluster.WithWildcard(ctx), options)
		},
	}
	cache.NewReflectorWithOptions(informers.PagedList{ListerWatcher: lw}, &metav1.PartialObjectMetadata{}, store,
		cache.ReflectorOptions{Name: "garbagecollector/" + r.GroupResource().String()}).
		RunWithContext(ctx)
}

// monitorStore feeds the graph with the events of one resource.
type monitorStore struct {
	collector *Collector
	resource  schema.GroupVersionResource
}

func (s *monitorStore) object(m metav1.Object) object {
	return object{cluster: logicalcluster.Of(m), resource: s.resource, namespace: m.GetNamespace(), name: m.GetName()}
}

func (s *monitorStore) Add(obj any) error    { return s.Update(obj) }
func (s *monitorStore) Resync() error        { return nil }
func (s *monitorStore) Update(obj any) error { s.set(obj.(metav1.Object)); return nil }

// changed is an informers.Handler.
func (s *monitorStore) changed(old, obj runtime.Object) {
	before, _ := old.(metav1.Object)
	now, exists := obj.(metav1.Object)
	if before != nil && (!exists || before.GetUID() != now.GetUID()) {
		s.deleted(before)
	}
	if exists {
		s.set(now)
	}
}

func (s *monitorStore) set(m metav1.Object) {
	o := s.object(m)
	before := s.collector.graph.ownersOf(o)
	if s.collector.graph.set(o, m) {
		s.collector.queue.Add(o)
	}
	s.wake(o.cluster, before) // who waits for this object may not have to any more
	for _, observer := range s.collector.observers {
		observer.Changed(s.resource, m)
	}
}

func (s *monitorStore) Delete(obj any) error {
	if m, ok := obj.(metav1.Object); ok {
		s.deleted(m)
	}
	return nil
}

func (s *monitorStore) deleted(m metav1.Object) {
	s.gone(s.object(m), m.GetUID())
	for _, observer := range s.collector.observers {
		observer.Deleted(s.resource, m)
	}
}

// gone handles the end of an object: its dependents have lost an owner, and its owners may wait for one less.
func (s *monitorStore) gone(o object, uid types.UID) {
	owners := s.collector.graph.ownersOf(o)
	s.collector.graph.remove(o)
	if dependents := s.collector.graph.dependentsOf(owner{o.cluster, uid}); len(dependents) > 0 {
		s.collector.deleted.Add(owner{o.cluster, uid}, nil)
		for _, dependent := range dependents {
			s.collector.queue.Add(dependent.object)
		}
	}
	s.wake(o.cluster, owners)
}

func (s *monitorStore) wake(cluster logicalcluster.Name, owners []types.UID) {
	for _, o := range s.collector.graph.known(cluster, owners) {
		s.collector.queue.Add(o)
	}
}

// Replace handles a full list: what is not in it is gone, and owners may have gone unseen.
func (s *monitorStore) Replace(list []any, _ string) error {
	present := sets.New[object]()
	for _, obj := range list {
		m := obj.(*metav1.PartialObjectMetadata)
		present.Insert(s.object(m))
		s.set(m)
	}
	for _, o := range s.collector.graph.of(s.resource) {
		if !present.Has(o) {
			s.gone(o, "")
		}
	}
	s.collector.recheckAll()
	s.collector.relisted(s.resource)
	return nil
}

func (c *Collector) relisted(resource schema.GroupVersionResource) {
	for _, observer := range c.observers {
		observer.Relisted(resource)
	}
}

// recheckAll looks at every object again. Deletions of owners that are not in the graph may have been missed while a
// watch was broken.
func (c *Collector) recheckAll() {
	c.graph.mu.RLock()
	defer c.graph.mu.RUnlock()
	for o := range c.graph.nodes {
		c.queue.Add(o)
	}
}

func clusterOf(o object) logicalcluster.Name { return o.cluster }

func (c *Collector) try(ctx context.Context, o object) {
	if err := c.process(logicalcluster.WithName(ctx, o.cluster), o); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("garbage collection failed, will retry", "cluster", o.cluster, "resource", o.resource.GroupResource(),
			"namespace", o.namespace, "name", o.name, "err", err)
		c.queue.AddRateLimited(o)
		return
	}
	c.queue.Forget(o)
}
