package informers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/internal/informers/compact"
)

// store keeps the objects of an informer, by Key.String().
type store interface {
	get(key string) (runtime.Object, bool)
	// peek is get without remembering the unpacked object, for readers of every object.
	peek(key string) (runtime.Object, bool)
	set(key string, obj runtime.Object) error
	remove(key string, obj runtime.Object) error
	keys() []string
	// has reports whether get returns an object, without unpacking it.
	has(key string) bool
	// unpacked returns obj in the form that get returns.
	unpacked(obj runtime.Object) runtime.Object
}

// packed is a store of as few bytes as possible, without indexes.
//
// Invariants:
//   - objects has the whole state. recent is a cache: get returns a remembered object only if objects still has the bytes that it was
//     unpacked from or packed to.
//   - Equal bytes are equal objects. Equal objects can have different bytes, because maps have no order and the codec learns words:
//     compare unpacked objects, as Replace does.
//   - All readers share what get returns, and must not change it. peek returns a new object.
//   - Strings of an unpacked object refer to its key and to a copy of its bytes and keep both in memory, but not what objects has.
//   - One goroutine packs at a time: the reflector, in set, and in packedList.ListWithContext before a list is complete; or remote, with
//     its mutex locked. mu guards objects and not the codec.
type packed struct {
	codec    *compact.Codec
	detector cache.MutationDetector
	recent   *recent
	// remembers makes set remember objects, because handlers of a change look them up.
	remembers bool

	mu      sync.RWMutex
	objects *table
}

// maxRead is how many unpacked objects are remembered, of some 1.5 KiB each, maxReadInOrder how many of a kind with indexes, and
// maxReadElsewhere how many of those of other shards, most of which only controllers read.
const maxRead, maxReadInOrder, maxReadElsewhere = 1 << 12, 1 << 10, 1 << 9

// mostRemembered is the number of packed bytes of the largest object that set remembers: a tenant can write objects that are never read.
const mostRemembered = 4 << 10

func newPacked(example runtime.Object, remembered int) (*packed, error) {
	codec, err := compact.New(example)
	return &packed{
		codec: codec, recent: newRecent(remembered), objects: newTable(),
	}, err
}

// data returns the bytes of an object: like itself, without a copy, if it is equal.
func (s *packed) data(key, like string) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects.get(key, like)
}

func (s *packed) get(key string) (runtime.Object, bool) {
	data, ok := s.data(key, s.recent.packed(key))
	if !ok {
		return nil, false
	}
	return s.recent.read(key, data, func() runtime.Object {
		obj := s.codec.Unpack(key, data)
		s.detector.AddObject(obj)
		return obj
	}), true
}

func (s *packed) has(key string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects.has(key)
}

func (s *packed) peek(key string) (runtime.Object, bool) {
	data, ok := s.data(key, "")
	if !ok {
		return nil, false
	}
	return s.codec.Unpack(key, data), true
}

func (s *packed) set(key string, obj runtime.Object) error {
	data, remembered := "", false
	if p, ok := obj.(*packedObject); ok {
		data = p.data
	} else {
		data = s.codec.Pack(key, obj)
		remembered = s.remembers && len(data) <= mostRemembered
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.set(key, data)
	if remembered {
		s.detector.AddObject(obj)
		s.recent.remember(key, data, obj)
	}
	return nil
}

func (s *packed) remove(key string, _ runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.remove(key)
	s.recent.forget(key)
	return nil
}

func (s *packed) keys() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects.keys()
}

// Know makes an informer of NewPacked keep s once for all objects that have it as a value, whatever its length. It must be called before
// Run.
func (i *Informer) Know(s string) {
	if p, ok := i.store.(*packed); ok {
		p.codec.Know(s)
	}
}

// packedObject is an object of a list that will be in a packed store.
type packedObject struct {
	metav1.TypeMeta
	key, data string
}

// DeepCopyObject implements runtime.Object.
func (o *packedObject) DeepCopyObject() runtime.Object {
	copied := *o
	return &copied
}

// unpacked returns obj as handlers receive it.
func (s *packed) unpacked(obj runtime.Object) runtime.Object {
	if p, ok := obj.(*packedObject); ok {
		return s.codec.Unpack(p.key, p.data)
	}
	return obj
}

// packedList packs every page of a list when it arrives. Not all objects are in memory unpacked at a time.
type packedList struct {
	PagedList
	pack      func(key string, obj runtime.Object) string
	transform func(runtime.Object)
}

func (l packedList) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	page, err := cache.ToListerWatcherWithContext(l.ListerWatcher).ListWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	from, err := meta.ListAccessor(page)
	if err != nil {
		return nil, err
	}
	list := &metainternalversion.List{ListMeta: metav1.ListMeta{ResourceVersion: from.GetResourceVersion(), Continue: from.GetContinue()}}
	err = meta.EachListItem(page, func(obj runtime.Object) error {
		l.transform(obj)
		key, err := storeKey(obj)
		if err != nil { // as ignore does
			utilruntime.HandleErrorWithContext(ctx, err, "Object is left out of the informer", "type", fmt.Sprintf("%T", obj))
			return nil
		}
		list.Items = append(list.Items, &packedObject{key: key, data: l.pack(key, obj)})
		return nil
	})
	return list, err
}

func (l packedList) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return cache.ToListerWatcherWithContext(l.ListerWatcher).WatchWithContext(ctx, options)
}
