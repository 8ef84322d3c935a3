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

// decodedLimit limits the stored size in bytes of cached decoded objects; they take several times as much memory.
const decodedLimit = 2 << 20

// decodeCache caches objects that are listed repeatedly, so that a list reads the stored values but decodes only those
// that changed. Its size is limited for the whole process, and it is independent of clusters: its keys are revisions
// and contents.
type decodeCache struct {
	limit int
	seed  maphash.Seed

	mu      sync.Mutex
	asked   [4096]decodedKey // recently requested once: cached on the second request
	size    int
	entries map[decodedKey]*linked.Element
	order   *linked.List // of decodedEntry, the most recently used first
}

// decodedKey identifies an object within one storage, because the result depends on the codec of the storage.
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

func newDecodeCache(limit int) *decodeCache {
	return &decodeCache{limit: limit, seed: maphash.MakeSeed(), entries: map[decodedKey]*linked.Element{}, order: linked.New()}
}

func (d *decodeCache) get(key decodedKey) (runtime.Object, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.entries[key]
	if !ok {
		return nil, false
	}
	d.order.MoveToFront(e)
	return e.Value.(decodedEntry).object, true
}

// wants reports whether a newly decoded object should be cached: not on its first request.
func (d *decodeCache) wants(key decodedKey, size int) bool {
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

// add caches a wanted object.
func (d *decodeCache) add(key decodedKey, size int, object runtime.Object) {
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

func (d *decodeCache) remove(e *linked.Element) {
	entry := d.order.Remove(e).(decodedEntry)
	delete(d.entries, entry.key)
	d.size -= entry.size
}

// forget drops the entries of a closed storage.
func (d *decodeCache) forget(storage *cachingDecoder) {
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

// cachingDecoder is the decoder of one storage. Objects of a list are shared and must not be modified, like those of
// upstream's watch cache.
type cachingDecoder struct {
	etcd3.Decoder
	cache *decodeCache
}

// DecodeListItem implements etcd3.Decoder. Lists across all clusters are read once, by informers, and not cached.
func (c *cachingDecoder) DecodeListItem(ctx context.Context, data []byte, revision uint64,
	newItem func() runtime.Object) (runtime.Object, error) {
	if l, ok := ctx.Value(deferredKey{}).(*deferredItems); ok {
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

// Decode implements etcd3.Decoder. The caller owns a single object, so cached objects are copied.
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

// set moves the content of an object to another one of its type. The source must not be used afterwards.
func set(object, to runtime.Object) {
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(to).Elem())
}

// stored receives a created object when it is read back unchanged, in which case nothing is decoded.
type stored struct {
	runtime.Object // the result
	created        runtime.Object
}

// Stored returns the object to pass to Create instead of out, an empty object of the type of obj. It requires that obj is
// complete, of the storage version, and of a type without conversion. After Create, out and obj share their content, and
// one of them must not be used any more.
func Stored(obj, out runtime.Object) runtime.Object { return stored{out, obj} }

// withoutDecoding returns what to pass to Create instead of out. Creates in a transaction are by the server itself, or pass Stored: obj is
// complete, and is not used afterwards.
func withoutDecoding(ctx context.Context, obj, out runtime.Object) runtime.Object {
	_, together := ctx.Value(partKey{}).(part)
	if _, already := out.(stored); !together || already || reflect.TypeOf(obj) != reflect.TypeOf(out) {
		return out
	}
	return stored{out, obj}
}

func (s stored) take(revision int64) error {
	set(s.Object, s.created)
	return storage.APIObjectVersioner{}.UpdateObject(s.Object, uint64(revision))
}
