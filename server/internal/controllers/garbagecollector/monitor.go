package garbagecollector

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// monitor follows the metadata of one resource of all clusters until ctx ends.
func (c *collector) monitor(ctx context.Context, r schema.GroupVersionResource) {
	store := &monitorStore{collector: c, resource: r}
	if informer, ok := c.Existing(r); ok {
		branch, end := informer.Branch()
		defer end()
		branch.AddHandler(store.changed)
		select {
		case <-informer.Synced():
			c.initial.done(r)
		case <-ctx.Done():
		}
		<-ctx.Done()
		return
	}
	if !c.awaitObjects(ctx, r) {
		return
	}
	client := c.Metadata.Resource(r)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(logicalcluster.WithWildcard(ctx), options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(logicalcluster.WithWildcard(ctx), options)
		},
	}
	informers.Reflect(ctx, cache.NewReflectorWithOptions(informers.PagedList{ListerWatcher: lw}, &metav1.PartialObjectMetadata{}, store,
		cache.ReflectorOptions{Name: "garbagecollector/" + r.GroupResource().String()}))
}

// awaitObjects returns true when an object of a resource is stored, and false when ctx ends. A monitor takes some 200 KiB, most of it for a
// handler of its own. Without it, resources that are bound or defined but have no objects take a few KiB.
func (c *collector) awaitObjects(ctx context.Context, r schema.GroupVersionResource) bool {
	for {
		err := c.Appears(ctx, r.GroupResource(), func() { c.initial.done(r) })
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			c.initial.appeared(r)
			return true
		}
		klog.FromContext(ctx).V(2).Info("Waiting again for the first object of a resource", decisionlog.Resource, r.GroupResource(),
			decisionlog.Reason, err)
		select {
		case <-c.Clock.After(appearRetry):
		case <-ctx.Done():
			return false
		}
	}
}

// monitorStore feeds the graph with the events of one resource.
type monitorStore struct {
	collector *collector
	resource  schema.GroupVersionResource
}

func (s *monitorStore) object(m metav1.Object) object { return runner.ObjectKeyOf(s.resource, m) }

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
		s.collector.controller.Enqueue(o)
	}
	s.enqueueOwners(o.Cluster, before) // owners that waited for this object may not have to any more
	s.collector.Objects.Changed(s.resource, m)
}

func (s *monitorStore) Delete(obj any) error {
	if m, ok := obj.(metav1.Object); ok {
		s.deleted(m)
	}
	return nil
}

func (s *monitorStore) deleted(m metav1.Object) {
	s.remove(s.object(m), m.GetUID())
	s.collector.Objects.Deleted(s.resource, m)
}

// remove handles the deletion of an object: its dependents have lost an owner, and its owners may have waited for it.
func (s *monitorStore) remove(o object, uid types.UID) {
	owners := s.collector.graph.ownersOf(o)
	s.collector.graph.remove(o)
	if dependents := s.collector.graph.dependentsOf(owner{o.Cluster, uid}); len(dependents) > 0 {
		s.collector.deleted.Add(owner{o.Cluster, uid}, nil)
		for _, dependent := range dependents {
			s.collector.controller.Enqueue(dependent.object)
		}
	}
	s.enqueueOwners(o.Cluster, owners)
}

func (s *monitorStore) enqueueOwners(cluster logicalcluster.Name, owners []types.UID) {
	for _, o := range s.collector.graph.known(cluster, owners) {
		s.collector.controller.Enqueue(o)
	}
}

// Replace handles a full list: objects that are not in it were deleted, and deletions of owners may have gone unnoticed.
func (s *monitorStore) Replace(list []any, _ string) error {
	present := sets.New[object]()
	for _, obj := range list {
		m := obj.(*metav1.PartialObjectMetadata)
		present.Insert(s.object(m))
		s.set(m)
	}
	for _, o := range s.collector.graph.of(s.resource) {
		if !present.Has(o) {
			s.remove(o, "")
		}
	}
	s.collector.initial.done(s.resource)
	s.collector.recheckAll()
	s.collector.Objects.Relisted(s.resource)
	return nil
}
