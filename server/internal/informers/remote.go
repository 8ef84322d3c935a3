package informers

import (
	"slices"
	"strings"

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
type remote struct {
	elsewhere *Elsewhere
	indexer   cache.Indexer // of offered, by remoteKey
}

// offered is an object that a shard offers.
type offered struct {
	shard string
	obj   runtime.Object
}

// remoteKey returns the key of an object that a shard offers. Names of shards have no vertical bar.
func remoteKey(shard, key string) string { return shard + "|" + key }

func newRemote(e *Elsewhere, indexers cache.Indexers) (*remote, error) {
	r := &remote{elsewhere: e, indexer: cache.NewIndexer(func(obj any) (string, error) {
		o := obj.(*offered)
		key, err := storeKey(o.obj)
		return remoteKey(o.shard, key), err
	}, cache.Indexers{byCluster: ofOffered(clusterIndex), byNamespace: ofOffered(namespaceIndex)})}
	return r, r.add(indexers)
}

// add adds indexes of objects.
func (r *remote) add(indexers cache.Indexers) error {
	all := cache.Indexers{}
	for name, f := range indexers {
		all[name] = ofOffered(f)
	}
	return r.indexer.AddIndexers(all)
}

func ofOffered(f cache.IndexFunc) cache.IndexFunc {
	return func(obj any) ([]string, error) { return f(obj.(*offered).obj) }
}

// from returns what a shard offers, whether it counts or not.
func (r *remote) from(shard, key string) (runtime.Object, bool) {
	o, ok, _ := r.indexer.GetByKey(remoteKey(shard, key)) // the error is always nil
	if !ok {
		return nil, false
	}
	return o.(*offered).obj, true
}

func offeredKeys(found []any) []OfferedKey {
	keys := make([]OfferedKey, 0, len(found))
	for _, obj := range found {
		o := obj.(*offered)
		key, _ := KeyOf(o.obj) // it is in the store
		keys = append(keys, OfferedKey{o.shard, key})
	}
	return keys
}

// get returns an object that counts.
func (r *remote) get(key Key) (runtime.Object, bool) {
	shard := r.elsewhere.Holder(key.Cluster)
	if shard == "" {
		return nil, false
	}
	return r.from(shard, key.String())
}

// byIndex returns the objects that an index maps to a value, and that count.
func (r *remote) byIndex(index, value string) ([]*offered, error) {
	found, err := r.indexer.ByIndex(index, value)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	counting := make([]*offered, 0, len(found))
	for _, obj := range found {
		if o := obj.(*offered); r.elsewhere.Holder(clusterOf(o.obj)) == o.shard {
			counting = append(counting, o)
		}
	}
	return counting, nil
}

// in returns the objects of a cluster that a shard offers, whether they count or not.
func (r *remote) in(cluster logicalcluster.Name, shard string) []*offered {
	found, _ := r.indexer.ByIndex(byCluster, string(cluster)) // the index exists
	all := make([]*offered, 0, len(found))
	for _, obj := range found {
		if o := obj.(*offered); o.shard == shard {
			all = append(all, o)
		}
	}
	return all
}

func clusterOf(obj runtime.Object) logicalcluster.Name {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return logicalcluster.Of(m)
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
	for _, obj := range i.remote.indexer.List() {
		if o := obj.(*offered); i.remote.elsewhere.Holder(clusterOf(o.obj)) == o.shard {
			r.handler(nil, o.obj)
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
	key := Key{Cluster: cluster, Namespace: namespace, Name: name}
	obj, ok := l.store.get(key.String())
	return l.typed(obj, ok, name)
}

// GetAnywhere returns one object of this shard, or of the shard that holds the cluster, also of a kind of edges.
func (l Lister[T]) GetAnywhere(cluster logicalcluster.Name, namespace, name string) (T, error) {
	key := Key{Cluster: cluster, Namespace: namespace, Name: name}
	obj, ok := l.store.get(key.String())
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
	found, _ := l.remote.indexer.ByIndex(byCluster, string(cluster)) // the index exists
	offers := make([]Offer[T], 0, len(found))
	for _, obj := range found {
		o := obj.(*offered)
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
