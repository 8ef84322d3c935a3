package storage

import (
	linked "container/list"
	"context"
	"hash/maphash"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// decodedLimit is how many bytes, as stored, the objects may have that are kept decoded; they take several times that.
const decodedLimit = 2 << 20

// decoded keeps objects that are listed again and again, so that such a list reads what is stored but decodes what has
// changed only. It is bounded for the whole process, and knows nothing of clusters: its keys are
// revisions and contents.
type decoded struct {
	limit int
	seed  maphash.Seed

	mu      sync.Mutex
	asked   [4096]decodedKey // what was asked for once lately: it is kept the second time
	size    int
	entries map[decodedKey]*linked.Element
	order   *linked.List // of decodedEntry, the last used first
}

// decodedKey identifies an object within one storage, whose codec decides what is decoded.
type decodedKey struct {
	storage  *cachingDecoder
	revision uint64
	content  uint64
}

type decodedEntry struct {
	key    decodedKey
	size   int
	object runtime.Object
}

func newDecoded(limit int) *decoded {
	return &decoded{limit: limit, seed: maphash.MakeSeed(), entries: map[decodedKey]*linked.Element{}, order: linked.New()}
}

func (d *decoded) get(key decodedKey) (runtime.Object, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[key]
	if !ok {
		return nil, false
	}
	d.order.MoveToFront(e)
	return e.Value.(decodedEntry).object, true
}

// wants tells whether an object is to be kept that was decoded just now: not the first time that it is asked for.
func (d *decoded) wants(key decodedKey, size int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.entries[key]; ok || size > d.limit/16 {
		return false
	}
	last := &d.asked[key.content%uint64(len(d.asked))]
	again := *last == key
	*last = key
	return again
}

// add keeps an object that is wanted.
func (d *decoded) add(key decodedKey, size int, object runtime.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.entries[key]; ok {
		return
	}
	d.entries[key] = d.order.PushFront(decodedEntry{key, size, object})
	d.size += size
	for d.size > d.limit {
		d.remove(d.order.Back())
	}
}

func (d *decoded) remove(e *linked.Element) {
	entry := d.order.Remove(e).(decodedEntry)
	delete(d.entries, entry.key)
	d.size -= entry.size
}

// forget drops what a storage that is closed has left.
func (d *decoded) forget(storage *cachingDecoder) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for e := d.order.Front(); e != nil; {
		next := e.Next()
		if e.Value.(decodedEntry).key.storage == storage {
			d.remove(e)
		}
		e = next
	}
	for i := range d.asked {
		if d.asked[i].storage == storage {
			d.asked[i] = decodedKey{}
		}
	}
}

// cachingDecoder is the decoder of one storage. Objects of a list are shared and must not be changed, as those out of
// upstream's watch cache.
type cachingDecoder struct {
	etcd3.Decoder
	cache *decoded
}

// DecodeListItem implements etcd3.Decoder. Lists over all clusters are read once, by informers, and not kept.
func (c *cachingDecoder) DecodeListItem(ctx context.Context, data []byte, revision uint64,
	newItem func() runtime.Object) (runtime.Object, error) {
	if l, ok := ctx.Value(laterKey{}).(*later); ok {
		l.items = append(l.items, undecoded{c, data, revision, newItem})
		return &unstructured.Unstructured{}, nil
	}
	if cluster, ok := logicalcluster.From(ctx); !ok || cluster.Wildcard || ctx.Value(ownedKey{}) != nil {
		return c.Decoder.DecodeListItem(ctx, data, revision, newItem)
	}
	key := decodedKey{storage: c, revision: revision, content: maphash.Bytes(c.cache.seed, data)}
	if object, ok := c.cache.get(key); ok {
		return object, nil
	}
	object, err := c.Decoder.DecodeListItem(ctx, data, revision, newItem)
	if err == nil && c.cache.wants(key, len(data)) {
		c.cache.add(key, len(data), object)
	}
	return object, err
}

// Decode implements etcd3.Decoder. Who reads a single object owns it: what is kept is copied.
func (c *cachingDecoder) Decode(data []byte, into runtime.Object, revision int64) error {
	if s, ok := into.(stored); ok {
		return s.take(revision)
	}
	key := decodedKey{storage: c, revision: uint64(revision), content: maphash.Bytes(c.cache.seed, data)}
	if object, ok := c.cache.get(key); ok && reflect.TypeOf(object) == reflect.TypeOf(into) {
		set(into, object.DeepCopyObject())
		return nil
	}
	if err := c.Decoder.Decode(data, into, revision); err != nil {
		return err
	}
	if c.cache.wants(key, len(data)) {
		c.cache.add(key, len(data), into.DeepCopyObject())
	}
	return nil
}

// set makes an object equal to another of its type, which must not be used any more.
func set(object, to runtime.Object) {
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(to).Elem())
}

// stored is what a created object is read back into when it comes back as it went: nothing is decoded then.
type stored struct {
	runtime.Object // the result
	created        runtime.Object
}

// Stored returns what to give to Create instead of out, an empty object of the type of obj, if obj is complete, of the
// version that is stored, and of a type that no conversion changes. Once it is created, out and obj are the same, and one
// of them must not be used any more.
func Stored(obj, out runtime.Object) runtime.Object { return stored{out, obj} }

func (s stored) take(revision int64) error {
	set(s.Object, s.created)
	return storage.APIObjectVersioner{}.UpdateObject(s.Object, uint64(revision))
}
