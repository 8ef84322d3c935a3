package informers

import (
	"hash/maphash"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/internal/informers/compact"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// asTheyAre is the form of objects that are not packed.
type asTheyAre struct{}

func (asTheyAre) keep(key string, obj runtime.Object) (string, runtime.Object) { return key, obj }
func (asTheyAre) object(_ string, obj runtime.Object) runtime.Object           { return obj }
func (asTheyAre) peek(_ string, obj runtime.Object) runtime.Object             { return obj }
func (asTheyAre) forget(string)                                                {}
func (asTheyAre) unpacked(obj runtime.Object) runtime.Object                   { return obj }

// packedForm packs objects without what their keys have: name, namespace and logical cluster.
//
// Invariants:
//   - A key and its bytes are one string. Strings of an unpacked object refer to it and keep it in memory.
//   - recent is a cache: object returns a remembered object only if it was unpacked from the same bytes.
//   - All readers share what object returns, and must not change it. peek returns a new object.
//   - One goroutine packs at a time, with packing locked.
type packedForm struct {
	packing  sync.Mutex
	codec    *compact.Codec
	detector cache.MutationDetector
	recent   *recent
}

func newPackedForm(example runtime.Object, remembered int, detector cache.MutationDetector) (*packedForm, error) {
	codec, err := compact.New(example)
	return &packedForm{codec: codec, detector: detector, recent: newRecent(remembered)}, err
}

// pack returns the bytes of an object without what key has. It does not change the object, which others may read.
func (f *packedForm) pack(key string, obj runtime.Object) string {
	whole := reflect.ValueOf(obj).Elem()
	part := reflect.New(whole.Type())
	part.Elem().Set(whole)
	m := part.Interface().(metav1.Object)
	m.SetName("")
	m.SetNamespace("")
	annotations := maps.Clone(m.GetAnnotations())
	delete(annotations, logicalcluster.AnnotationKey)
	if len(annotations) == 0 {
		annotations = nil
	}
	m.SetAnnotations(annotations)
	f.packing.Lock()
	defer f.packing.Unlock()
	return f.codec.Pack(key, part.Interface().(runtime.Object))
}

func (f *packedForm) keep(key string, obj runtime.Object) (string, string) {
	data := ""
	if p, ok := obj.(*packedObject); ok {
		data = p.data
	} else {
		data = f.pack(key, obj)
	}
	return together(key, data)
}

// together returns a key and the bytes of its object as parts of one string: one allocation instead of two.
func together(key, data string) (string, string) {
	whole := key + data
	return whole[:len(key)], whole[len(key):]
}

// peek implements form.
func (f *packedForm) peek(key, data string) runtime.Object {
	obj := f.codec.Unpack(key, data)
	m := obj.(metav1.Object)
	k := parseKey(key)
	m.SetNamespace(k.Namespace)
	m.SetName(k.Name)
	annotations := m.GetAnnotations()
	if annotations == nil {
		annotations = make(map[string]string, 1)
	}
	annotations[logicalcluster.AnnotationKey] = string(k.Cluster)
	m.SetAnnotations(annotations)
	return obj
}

func (f *packedForm) object(key, data string) runtime.Object {
	return f.recent.read(key, data, func() runtime.Object {
		obj := f.peek(key, data)
		f.detector.AddObject(obj)
		return obj
	})
}

func (f *packedForm) forget(key string) { f.recent.forget(key) }

func (f *packedForm) unpacked(obj runtime.Object) runtime.Object {
	if p, ok := obj.(*packedObject); ok {
		return f.peek(p.key, p.data)
	}
	return obj
}

// NewPackedInOrder is NewPacked for an informer with indexes, whose objects are rarely listed.
func NewPackedInOrder(resource schema.GroupVersionResource, example runtime.Object, lw cache.ListerWatcher,
	transform func(runtime.Object)) (*Informer, error) {
	detector := newDetector(resource)
	form, err := newPackedForm(example, maxReadInOrder, detector)
	if err != nil {
		return nil, err
	}
	kept := newOrdered(form, nil)
	return &Informer{
		resource:  resource,
		store:     kept,
		indexer:   kept,
		packs:     true,
		lw:        packedList{PagedList{lw}, form.pack, transform},
		example:   example,
		transform: transform,
		detector:  detector,
		synced:    make(chan struct{}),
	}, nil
}

// recent are recently read objects, which need not be unpacked for every request. A slot may keep an object that was removed or replaced
// until another object takes the slot.
type recent struct {
	seed  maphash.Seed
	slots []atomic.Pointer[reading]
}

// reading is an object and what it was unpacked from.
type reading struct {
	key, packed string
	obj         runtime.Object
}

func newRecent(n int) *recent {
	return &recent{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[reading], n)}
}

func (r *recent) slot(key string) *atomic.Pointer[reading] {
	return &r.slots[maphash.String(r.seed, key)%uint64(len(r.slots))]
}

// packed returns the bytes of the remembered object of a key, or an empty string.
func (r *recent) packed(key string) string {
	if known := r.slot(key).Load(); known != nil && known.key == key {
		return known.packed
	}
	return ""
}

// read returns the object that was unpacked from data, or unpacks it.
func (r *recent) read(key, data string, unpack func() runtime.Object) runtime.Object {
	slot := r.slot(key)
	if known := slot.Load(); known != nil && known.packed == data && known.key == key {
		return known.obj
	}
	obj := unpack()
	slot.Store(&reading{key, data, obj})
	return obj
}

// remember makes read return an object from which data was packed.
func (r *recent) remember(key, data string, obj runtime.Object) {
	r.slot(key).Store(&reading{key, data, obj})
}

func (r *recent) forget(key string) { r.slot(key).Store(nil) }
