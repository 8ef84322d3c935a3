// Package informers keeps what the server's own controllers, admission and authorization read: one informer per
// resource over all logical clusters, never one per cluster. Objects in it are read-only.
package informers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
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

// LogicalCluster returns the cluster of the object.
func (k Key) LogicalCluster() logicalcluster.Name { return k.Cluster }

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

// Handler handles every change, in order, in the goroutine of the informer. It must not block. The old object is nil for an addition, the
// new one for a deletion.
type Handler func(oldObj, newObj runtime.Object)

// Informer mirrors one resource of all clusters.
type Informer struct {
	resource schema.GroupVersionResource
	store    store
	indexer  cache.Indexer // the store; nil if that has no indexes
	packs    bool          // whether the store keeps other objects than it is given
	lw       cache.ListerWatcher
	example  runtime.Object

	transform func(runtime.Object)
	detector  cache.MutationDetector

	mu       sync.Mutex // guards handlers and serialises delivery
	handlers []*registered
	root     *Informer // of a branch: the informer itself
	synced   chan struct{}
	once     sync.Once
	version  atomic.Uint64 // everything up to it is in the store
	waiting  versionWaiters

	acknowledged Acknowledged // nil if Current does not wait
	filling      *filling     // nil if look-ups never read what is stored

	// What follows is nil, and changes nothing, on a server without other shards, and for a kind that is not global.
	remote *remote    // the objects of other shards
	merged *remote    // remote, if listers have it
	edges  *Elsewhere // if the objects decide where clusters are
	// touched are clusters whose edges have changed, until that is handled; guarded by mu.
	touched []logicalcluster.Name
	added   []cache.Indexers // by AddIndexers
}

// New returns an informer that is filled once Run is called. lw must list and watch all clusters.
func New(resource schema.GroupVersionResource, example runtime.Object, lw cache.ListerWatcher, indexers cache.Indexers) *Informer {
	kept := newOrdered(asTheyAre{}, indexers)
	return &Informer{
		resource: resource,
		store:    kept,
		indexer:  kept,
		lw:       PagedList{lw},
		example:  example,
		detector: newDetector(resource),
		synced:   make(chan struct{}),
	}
}

// newDetector returns a detector that ends the process after a change of an object in a store, if KUBE_CACHE_MUTATION_DETECTOR is true in
// the environment. Otherwise it does nothing. All readers share the objects.
func newDetector(resource schema.GroupVersionResource) cache.MutationDetector {
	return cache.NewCacheMutationDetector("all-clusters/" + resource.GroupResource().String())
}

// NewPacked returns an informer of very many objects, which are never listed by cluster or namespace. transform changes every object before
// it is stored, to drop fields that no reader needs.
func NewPacked(resource schema.GroupVersionResource, example runtime.Object, lw cache.ListerWatcher,
	transform func(runtime.Object)) (*Informer, error) {
	packed, err := newPacked(example, maxRead)
	if err != nil {
		return nil, err
	}
	packed.detector, packed.remembers = newDetector(resource), true
	return &Informer{
		resource:  resource,
		store:     packed,
		packs:     true,
		lw:        packedList{PagedList{lw}, packed.codec.Pack, transform},
		example:   example,
		transform: transform,
		detector:  packed.detector,
		synced:    make(chan struct{}),
	}, nil
}

// Resource returns the resource that the informer mirrors.
func (i *Informer) Resource() schema.GroupVersionResource { return i.resource }

// Indexer returns the store of this shard's objects; its keys are Key.String(). It is nil for an informer of NewPacked.
func (i *Informer) Indexer() cache.Indexer { return i.indexer }

// AddTransform makes f change every object before it is kept, after the functions that were added earlier. f may drop fields that the row
// of the kind in Kinds declares as trimmed, and share memory between equal objects. It must be called before Run.
func (i *Informer) AddTransform(f func(runtime.Object)) {
	earlier := i.transform
	if earlier == nil {
		i.transform = f
		return
	}
	i.transform = func(obj runtime.Object) {
		earlier(obj)
		f(obj)
	}
}

// Synced returns a channel that is closed when the first full list is in the store, and the handlers have handled it.
func (i *Informer) Synced() <-chan struct{} { return i.synced }

// AddHandler adds h, and delivers the content of the store as additions. Changes are delivered between these additions, so a handler that
// starts with very many objects delays no other. h receives the objects of this shard only.
func (i *Informer) AddHandler(h Handler) { i.addHandler(h, false) }

// AddHandlerForChanges is AddHandler without the content of the store: h receives only what changes from now on.
func (i *Informer) AddHandlerForChanges(h Handler) {
	root := i.trunk()
	root.mu.Lock()
	defer root.mu.Unlock()
	root.handlers = append(root.handlers, &registered{handler: h, at: i})
}

// trunk returns the informer that i is a branch of, or i.
func (i *Informer) trunk() *Informer {
	if i.root != nil {
		return i.root
	}
	return i
}

func (i *Informer) addHandler(h Handler, all bool) {
	root := i.trunk()
	r := &registered{handler: h, at: i, all: all}
	var keys []string
	if all && root.remote != nil {
		keys = root.registerForAll(r)
	} else {
		root.mu.Lock()
		keys = root.register(r)
		root.mu.Unlock()
	}
	for some := range slices.Chunk(keys, batchSize) {
		root.mu.Lock()
		for _, key := range some {
			if !r.pending[key] {
				continue
			}
			if obj, ok := root.store.peek(key); ok {
				r.deliver(key, nil, obj)
			}
		}
		root.mu.Unlock()
	}
	root.mu.Lock()
	defer root.mu.Unlock()
	r.pending = nil
}

// register makes a handler receive changes, and returns the keys of the objects that it has not received; i.mu is held.
func (i *Informer) register(r *registered) []string {
	keys := i.store.keys()
	r.pending = make(map[string]bool, len(keys))
	for _, key := range keys {
		r.pending[key] = true
	}
	i.handlers = append(i.handlers, r)
	return keys
}

// batchSize is how many objects a new handler receives while changes wait.
const batchSize = 100

// deliver passes a change to the handler. An object that the handler has not received yet is an addition, and its deletion is not
// delivered.
func (r *registered) deliver(key string, old, obj runtime.Object) {
	if r.pending[key] {
		delete(r.pending, key)
		if old = nil; obj == nil {
			return
		}
	}
	r.handler(old, obj)
}

// Run lists and watches until ctx ends.
func (i *Informer) Run(ctx context.Context) {
	detecting := make(chan struct{})
	go func() {
		defer close(detecting)
		i.detector.Run(ctx.Done())
	}()
	defer func() { <-detecting }()
	if i.filling != nil {
		caughtUp := make(chan struct{})
		go func() {
			defer close(caughtUp)
			i.catchUp(ctx)
		}()
		defer func() { <-caughtUp }()
	}
	Reflect(ctx, cache.NewReflectorWithOptions(i.lw, i.example, (*deliveringStore)(i),
		cache.ReflectorOptions{Name: "all-clusters/" + i.resource.GroupResource().String()}))
}

// deliveringStore is the reflector's view of an Informer.
type deliveringStore Informer

func (s *deliveringStore) Add(obj any) error    { return s.set(obj) }
func (s *deliveringStore) Update(obj any) error { return s.set(obj) }
func (s *deliveringStore) Resync() error        { return nil }

// UpdateResourceVersion implements cache.ResourceVersionUpdater.
func (s *deliveringStore) UpdateResourceVersion(version string) {
	if v, err := strconv.ParseUint(version, 10, 64); err == nil {
		s.version.Store(v)
		s.waiting.reached(v)
	}
}

// Version returns the resource version up to which all changes are in the store. It rises with each change and each bookmark of the watch.
func (i *Informer) Version() uint64 { return i.version.Load() }

func (s *deliveringStore) set(obj any) error {
	key, object, err := s.take(obj)
	if err != nil {
		return s.ignore(err)
	}
	defer s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(key, object)
}

// ignore logs an object without a key, and leaves it out. An error would make the reflector list again, forever.
func (s *deliveringStore) ignore(err error) error {
	utilruntime.HandleErrorWithContext(context.Background(), err, "Object is left out of the informer", "resource",
		s.resource.GroupResource().String())
	return nil
}

// take returns an object that arrives as it is kept, and its key.
func (s *deliveringStore) take(obj any) (string, runtime.Object, error) {
	if p, ok := obj.(*packedObject); ok {
		return p.key, p, nil
	}
	object := obj.(runtime.Object)
	if s.transform != nil {
		s.transform(object)
	}
	key, err := storeKey(object)
	return key, object, err
}

// put stores an object and delivers the change; s.mu is held.
func (s *deliveringStore) put(key string, obj runtime.Object) error {
	old, _ := s.store.get(key)
	if err := s.store.set(key, obj); err != nil {
		return err
	}
	if !s.packs {
		s.detector.AddObject(obj)
	}
	s.deliver(key, old, s.store.unpacked(obj))
	return nil
}

func (s *deliveringStore) Delete(obj any) error {
	key, err := storeKey(obj)
	if err != nil {
		return s.ignore(err)
	}
	defer s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(key)
}

// drop removes an object, if it exists, and delivers the change; s.mu is held.
func (s *deliveringStore) drop(key string) error {
	old, existed := s.store.get(key)
	if !existed {
		return nil
	}
	if err := s.store.remove(key, old); err != nil {
		return err
	}
	s.deliver(key, old, nil)
	return nil
}

// Replace replaces the content of the store by a full list, and delivers only the differences.
func (s *deliveringStore) Replace(objs []any, version string) error {
	defer s.UpdateResourceVersion(version)
	defer s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := map[string]bool{}
	for _, key := range s.store.keys() {
		missing[key] = true
	}
	for _, obj := range objs {
		key, object, err := s.take(obj)
		if err != nil {
			_ = s.ignore(err)
			continue
		}
		delete(missing, key)
		if old, existed := s.store.get(key); existed && sameVersion(old, s.store.unpacked(object)) {
			continue
		}
		if err := s.put(key, object); err != nil {
			return err
		}
	}
	for key := range missing {
		if err := s.drop(key); err != nil {
			return err
		}
	}
	s.once.Do(func() { close(s.synced) })
	return nil
}

func sameVersion(a, b any) bool {
	x, errX := meta.Accessor(a)
	y, errY := meta.Accessor(b)
	return errX == nil && errY == nil && x.GetUID() == y.GetUID() && x.GetResourceVersion() == y.GetResourceVersion()
}

func (s *deliveringStore) deliver(key string, old, obj runtime.Object) {
	if s.edges != nil {
		s.touch(old, obj)
	}
	for _, r := range s.handlers {
		r.deliver(key, old, obj)
	}
}

// PagedList makes a reflector fill its store by lists. The alternative, a streaming list, identifies objects by namespace and name, and
// would merge objects of different clusters.
type PagedList struct{ cache.ListerWatcher }

// IsWatchListSemanticsUnSupported makes the reflector list.
func (PagedList) IsWatchListSemanticsUnSupported() bool { return true }
