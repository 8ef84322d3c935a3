// Package informers keeps what the server's own controllers, admission and authorization read: one informer per
// resource over all logical clusters, never one per cluster. Objects in it are read-only.
package informers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Key identifies an object across all clusters.
type Key struct {
	Cluster         logicalcluster.Name
	Namespace, Name string
}

// String returns "<cluster>|<namespace>/<name>", or "<cluster>|<name>" for a cluster scoped object.
func (k Key) String() string {
	if k.Namespace == "" {
		return string(k.Cluster) + "|" + k.Name
	}
	return string(k.Cluster) + "|" + k.Namespace + "/" + k.Name
}

// KeyOf returns the key of an object, or of the last known state of a deleted one.
func KeyOf(obj any) (Key, error) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return Key{}, err
	}
	c := logicalcluster.Of(m)
	if c == "" {
		return Key{}, fmt.Errorf("object %s/%s carries no annotation %s", m.GetNamespace(), m.GetName(), logicalcluster.AnnotationKey)
	}
	return Key{Cluster: c, Namespace: m.GetNamespace(), Name: m.GetName()}, nil
}

func storeKey(obj any) (string, error) {
	k, err := KeyOf(obj)
	return k.String(), err
}

// Indexes that every informer has.
const (
	byCluster   = "cluster"
	byNamespace = "namespace"
)

func clusterIndex(obj any) ([]string, error) {
	k, err := KeyOf(obj)
	return []string{string(k.Cluster)}, err
}

func namespaceIndex(obj any) ([]string, error) {
	k, err := KeyOf(obj)
	if err != nil || k.Namespace == "" {
		return nil, err
	}
	return []string{string(k.Cluster) + "|" + k.Namespace}, nil
}

// Handler is told of every change, in order, from the one goroutine of the informer: it must not block. The old object
// is nil for an addition, the new one for a deletion.
type Handler func(oldObj, newObj runtime.Object)

// Informer mirrors one resource of all clusters.
type Informer struct {
	resource schema.GroupVersionResource
	indexer  cache.Indexer
	lw       cache.ListerWatcher
	example  runtime.Object

	transform func(runtime.Object)

	mu       sync.Mutex // guards handlers and serialises delivery
	handlers []registered
	root     *Informer // of a branch: the informer that it is of
	synced   chan struct{}
	once     sync.Once
}

// New returns an informer that is filled once Run is called. lw must list and watch all clusters.
func New(resource schema.GroupVersionResource, example runtime.Object, lw cache.ListerWatcher, indexers cache.Indexers) *Informer {
	all := cache.Indexers{byCluster: clusterIndex, byNamespace: namespaceIndex}
	for name, f := range indexers {
		all[name] = f
	}
	return &Informer{
		resource: resource,
		indexer:  cache.NewIndexer(storeKey, all),
		lw:       pagedList{lw},
		example:  example,
		synced:   make(chan struct{}),
	}
}

// Resource returns what is mirrored.
func (i *Informer) Resource() schema.GroupVersionResource { return i.resource }

// Indexer returns the store; its keys are Key.String().
func (i *Informer) Indexer() cache.Indexer { return i.indexer }

// SetTransform makes f change every object before it is stored, to drop or share what nobody needs a copy of. It must be
// called before Run.
func (i *Informer) SetTransform(f func(runtime.Object)) { i.transform = f }

// Synced is closed when the first full list is in the store and was delivered to the handlers.
func (i *Informer) Synced() <-chan struct{} { return i.synced }

// HasSynced tells whether Synced is closed.
func (i *Informer) HasSynced() bool {
	select {
	case <-i.synced:
		return true
	default:
		return false
	}
}

// AddHandler registers h and delivers what is in the store as additions first.
func (i *Informer) AddHandler(h Handler) {
	root := i
	if i.root != nil {
		root = i.root
	}
	root.mu.Lock()
	defer root.mu.Unlock()
	for _, obj := range root.indexer.List() {
		h(nil, obj.(runtime.Object))
	}
	root.handlers = append(root.handlers, registered{h, i})
}

// Run lists and watches until ctx ends.
func (i *Informer) Run(ctx context.Context) {
	cache.NewReflectorWithOptions(i.lw, i.example, (*deliveringStore)(i), cache.ReflectorOptions{Name: "all-clusters/" + i.resource.GroupResource().String()}).RunWithContext(ctx)
}

// deliveringStore is the reflector's view of an Informer.
type deliveringStore Informer

func (s *deliveringStore) Add(obj any) error    { return s.set(obj) }
func (s *deliveringStore) Update(obj any) error { return s.set(obj) }
func (s *deliveringStore) Resync() error        { return nil }

func (s *deliveringStore) trim(obj any) {
	if s.transform != nil {
		s.transform(obj.(runtime.Object))
	}
}

func (s *deliveringStore) set(obj any) error {
	s.trim(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	old, existed, err := s.indexer.Get(obj)
	if err != nil {
		return err
	}
	var event func(any, any) error
	if existed {
		event = s.indexerUpdate
	} else {
		event, old = s.indexerAdd, nil
	}
	return event(old, obj)
}

func (s *deliveringStore) indexerAdd(_, obj any) error {
	if err := s.indexer.Add(obj); err != nil {
		return err
	}
	s.deliver(nil, obj.(runtime.Object))
	return nil
}

func (s *deliveringStore) indexerUpdate(old, obj any) error {
	if err := s.indexer.Update(obj); err != nil {
		return err
	}
	s.deliver(old.(runtime.Object), obj.(runtime.Object))
	return nil
}

func (s *deliveringStore) Delete(obj any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, existed, err := s.indexer.Get(obj)
	if err != nil || !existed {
		return err
	}
	if err := s.indexer.Delete(obj); err != nil {
		return err
	}
	s.deliver(old.(runtime.Object), nil)
	return nil
}

// Replace brings the store to a full list, and tells the handlers only what differs.
func (s *deliveringStore) Replace(objs []any, resourceVersion string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range objs {
		s.trim(obj)
	}
	before := map[string]any{}
	for _, obj := range s.indexer.List() {
		key, err := storeKey(obj)
		if err != nil {
			return err
		}
		before[key] = obj
	}
	if err := s.indexer.Replace(objs, resourceVersion); err != nil {
		return err
	}
	for _, obj := range objs {
		key, err := storeKey(obj)
		if err != nil {
			return err
		}
		old, existed := before[key]
		delete(before, key)
		switch {
		case !existed:
			s.deliver(nil, obj.(runtime.Object))
		case !sameVersion(old, obj):
			s.deliver(old.(runtime.Object), obj.(runtime.Object))
		}
	}
	for _, gone := range before {
		s.deliver(gone.(runtime.Object), nil)
	}
	s.once.Do(func() { close(s.synced) })
	return nil
}

func sameVersion(a, b any) bool {
	x, errX := meta.Accessor(a)
	y, errY := meta.Accessor(b)
	return errX == nil && errY == nil && x.GetUID() == y.GetUID() && x.GetResourceVersion() == y.GetResourceVersion()
}

func (s *deliveringStore) deliver(old, obj runtime.Object) {
	for _, r := range s.handlers {
		r.handler(old, obj)
	}
}

// pagedList makes the reflector fill the store by list. Its streaming alternative collects objects by namespace and
// name, and would merge those of different clusters.
type pagedList struct{ cache.ListerWatcher }

func (pagedList) IsWatchListSemanticsUnSupported() bool { return true }
