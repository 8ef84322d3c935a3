package informers

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// remote is the second store of an informer of a global kind: what other shards offer. Only Elsewhere writes it.
//
// Invariants:
//   - An object counts for readers and handlers only if its cluster is held by the shard that offers it.
//   - A list of this shard's own objects never changes it.
//   - An index has the keys of exactly the objects in store. What is in store has a key of remoteKey.
//   - Only look-ups of what counts remember unpacked objects. Finding places, which reads everything once, does not.
type remote struct {
	elsewhere *Elsewhere
	store     store // by remoteKey

	mu      sync.RWMutex // guards indexes, and changes of store
	indexes map[string]*keyIndex
}

// offered is an object that a shard offers.
type offered struct {
	shard string
	key   string // Key.String()
	obj   runtime.Object
}

// remoteKey returns the key of an object that a shard offers. Names of shards and clusters have no vertical bar.
func remoteKey(shard, key string) string { return shard + "|" + key }

// offeredKey returns what remoteKey was made from.
func offeredKey(key string) OfferedKey {
	shard, rest, _ := strings.Cut(key, "|")
	return OfferedKey{shard, parseKey(rest)}
}

func newRemote(e *Elsewhere, i *Informer, kind Kind) (*remote, error) {
	r := &remote{elsewhere: e, store: &plain{objects: map[string]runtime.Object{}}, indexes: map[string]*keyIndex{}}
	if kind.Packed || kind.PackedElsewhere {
		packed, err := newPacked(kind.Example, maxReadElsewhere)
		if err != nil {
			return nil, err
		}
		packed.detector = i.detector
		r.store = packed
	}
	return r, r.add(cache.Indexers{byCluster: clusterIndex, byNamespace: namespaceIndex})
}

// add adds indexes of objects.
func (r *remote) add(indexers cache.Indexers) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, of := range indexers {
		if r.indexes[name] != nil {
			return fmt.Errorf("the index %s exists", name)
		}
		index := newKeyIndex(of)
		for _, key := range r.store.keys() {
			obj, _ := r.store.peek(key) // mu is locked
			index.replace(key, nil, obj)
		}
		r.indexes[name] = index
	}
	return nil
}

// change replaces the old state of an object by obj; nil means none.
func (r *remote) change(key string, old, obj runtime.Object) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, index := range r.indexes {
		index.replace(key, old, obj)
	}
	if obj == nil {
		return r.store.remove(key, old)
	}
	return r.store.set(key, obj)
}

// from returns what a shard offers, whether it counts or not.
func (r *remote) from(shard, key string) (runtime.Object, bool) {
	return r.store.peek(remoteKey(shard, key))
}

func offeredKeys(found []string) []OfferedKey {
	keys := make([]OfferedKey, len(found))
	for n, key := range found {
		keys[n] = offeredKey(key)
	}
	return keys
}

// get returns an object that counts.
func (r *remote) get(key Key) (runtime.Object, bool) {
	shard := r.elsewhere.Holder(key.Cluster)
	if shard == "" {
		return nil, false
	}
	return r.store.get(remoteKey(shard, key.String()))
}

// find returns the accepted objects that an index maps to a value, as read returns them.
func (r *remote) find(index, value string, read func(key string) (runtime.Object, bool), accept func(OfferedKey) bool) ([]offered, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	x := r.indexes[index]
	if x == nil {
		return nil, fmt.Errorf("the index %s does not exist", index)
	}
	var all []offered
	for _, key := range x.find(value) {
		k := offeredKey(key)
		if !accept(k) {
			continue
		}
		if obj, ok := read(key); ok {
			all = append(all, offered{k.Shard, k.Key.String(), obj})
		}
	}
	return all, nil
}

// counts reports whether an object counts.
func (r *remote) counts(key OfferedKey) bool { return r.elsewhere.Holder(key.Cluster) == key.Shard }

// byIndex returns the objects that an index maps to a value, and that count.
func (r *remote) byIndex(index, value string) ([]offered, error) {
	return r.find(index, value, r.store.get, r.counts)
}

// in returns the accepted objects of a cluster, whether they count or not.
func (r *remote) in(cluster logicalcluster.Name, accept func(OfferedKey) bool) []offered {
	all, _ := r.find(byCluster, string(cluster), r.store.peek, accept) // the index exists
	return all
}

// keysIn returns the keys of the objects of a cluster that shards offer.
func (r *remote) keysIn(cluster logicalcluster.Name) []OfferedKey {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return offeredKeys(r.indexes[byCluster].find(string(cluster)))
}

// AddHandlerForAll is AddHandler for the objects of all shards. The handler receives an object of another shard as an addition when it
// arrives or begins to count, as a deletion when it goes or no longer counts, and as both when its UID changes.
func (i *Informer) AddHandlerForAll(h Handler) { i.addHandler(h, true) }

// registerForAll registers a handler, and delivers what counts of other shards.
func (i *Informer) registerForAll(r *registered) (localKeys []string) {
	i.remote.elsewhere.changing.Lock()
	defer i.remote.elsewhere.changing.Unlock()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, key := range i.remote.store.keys() {
		if !i.remote.counts(offeredKey(key)) {
			continue
		}
		if obj, ok := i.remote.store.peek(key); ok {
			r.handler(nil, obj)
		}
	}
	return i.register(r)
}

// deliverRemote passes a change of an object of another shard to the handlers for all.
func (i *Informer) deliverRemote(old, obj runtime.Object) {
	if old != nil && obj != nil && !sameUID(old, obj) {
		i.deliverRemote(old, nil)
		old = nil
	}
	for _, r := range i.handlers {
		if r.all {
			r.handler(old, obj)
		}
	}
}

func sameUID(a, b runtime.Object) bool {
	x, errX := meta.Accessor(a)
	y, errY := meta.Accessor(b)
	return errX == nil && errY == nil && x.GetUID() == y.GetUID()
}

// AddIndexers adds indexes to the stores of the objects of this shard and of other shards. It must be called before Run.
func (i *Informer) AddIndexers(indexers cache.Indexers) error {
	if err := i.indexer.AddIndexers(indexers); err != nil {
		return err
	}
	i.added = append(i.added, indexers)
	if i.remote == nil {
		return nil
	}
	return i.remote.add(indexers)
}

// GetLocal returns one object of this shard, or a NotFound error. Writers of objects use it.
func (l Lister[T]) GetLocal(cluster logicalcluster.Name, namespace, name string) (T, error) {
	obj, ok := l.lookUp(Key{Cluster: cluster, Namespace: namespace, Name: name})
	return l.typed(obj, ok, name)
}

// GetAnywhere returns one object of this shard, or of the shard that holds the cluster, also of a kind of edges.
func (l Lister[T]) GetAnywhere(cluster logicalcluster.Name, namespace, name string) (T, error) {
	key := Key{Cluster: cluster, Namespace: namespace, Name: name}
	obj, ok := l.lookUp(key)
	if !ok && l.remote != nil {
		obj, ok = l.remote.get(key)
	}
	return l.typed(obj, ok, name)
}

// Offered returns an object as a shard offers it, whether it holds the cluster or not.
func (l Lister[T]) Offered(shard string, cluster logicalcluster.Name, name string) (T, bool) {
	var none T
	if l.remote == nil {
		return none, false
	}
	obj, ok := l.remote.from(shard, Key{Cluster: cluster, Name: name}.String())
	if !ok {
		return none, false
	}
	return obj.(T), true
}

// Offers returns the objects of a cluster that shards offer, by shard, in the order of their names, whether the shards hold the cluster or
// not.
func (l Lister[T]) Offers(cluster logicalcluster.Name) []Offer[T] {
	if l.remote == nil {
		return nil
	}
	found := l.remote.in(cluster, func(OfferedKey) bool { return true })
	offers := make([]Offer[T], 0, len(found))
	for _, o := range found {
		offers = append(offers, Offer[T]{Shard: o.shard, Object: o.obj.(T)})
	}
	slices.SortFunc(offers, func(a, b Offer[T]) int { return strings.Compare(a.Shard, b.Shard) })
	return offers
}

// Offer is an object that a shard offers.
type Offer[T runtime.Object] struct {
	Shard  string
	Object T
}
