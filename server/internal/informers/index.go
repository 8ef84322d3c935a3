package informers

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Index maps values to the keys of the objects of this shard that have them, also those of an informer of NewPacked.
type Index struct {
	mu   sync.RWMutex
	keys *keyIndex
}

// NewIndex returns an index by the values of a function. Objects without values take no memory. The index has a change before the handlers
// that are added to the informer later.
func (i *Informer) NewIndex(values func(runtime.Object) []string) *Index {
	x := &Index{keys: newKeyIndex(func(obj any) ([]string, error) { return values(obj.(runtime.Object)), nil })}
	i.AddHandler(x.changed)
	return x
}

// changed is a Handler.
func (x *Index) changed(old, obj runtime.Object) {
	key, err := storeKey(cmp.Or(obj, old))
	if err != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.keys.replace(key, old, obj)
}

// Find returns the keys of the objects that have a value.
func (x *Index) Find(value string) []Key {
	x.mu.RLock()
	defer x.mu.RUnlock()
	found := x.keys.find(value)
	keys := make([]Key, len(found))
	for n := range found {
		keys[n] = parseKey(found[n])
	}
	return keys
}

// parseKey returns the key of a string of Key.String. Names of clusters have no vertical bar, and names of objects no slash.
func parseKey(s string) Key {
	cluster, name, _ := strings.Cut(s, "|")
	k := Key{Cluster: logicalcluster.Name(cluster), Name: name}
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		k.Namespace, k.Name = namespace, name
	}
	return k
}

// keyIndex maps values to the keys of the objects that have them. Most values have one key, which takes no
// set. The caller guards it.
type keyIndex struct {
	of   cache.IndexFunc
	keys map[string]keySet
}

// keySet has one key if more is nil, and the keys of more otherwise.
type keySet struct {
	one  string
	more map[string]struct{}
}

func newKeyIndex(of cache.IndexFunc) *keyIndex { return &keyIndex{of, map[string]keySet{}} }

// replace replaces the values of the old state of an object by those of the new state; nil means none.
func (x *keyIndex) replace(key string, old, obj runtime.Object) {
	before, now := x.values(old), x.values(obj)
	for _, value := range before {
		if !slices.Contains(now, value) {
			x.remove(value, key)
		}
	}
	for _, value := range now {
		if !slices.Contains(before, value) {
			x.add(value, key)
		}
	}
}

// values returns the values of an object. One that cannot be indexed has none.
func (x *keyIndex) values(obj runtime.Object) []string {
	if obj == nil {
		return nil
	}
	values, err := x.of(obj)
	if err != nil {
		return nil
	}
	return values
}

func (x *keyIndex) add(value, key string) {
	set, ok := x.keys[value]
	switch {
	case !ok:
		x.keys[value] = keySet{one: key}
	case set.more != nil:
		set.more[key] = struct{}{}
	case set.one != key:
		x.keys[value] = keySet{more: map[string]struct{}{set.one: {}, key: {}}}
	}
}

func (x *keyIndex) remove(value, key string) {
	set := x.keys[value]
	delete(set.more, key)
	if set.one == key || set.more != nil && len(set.more) == 0 {
		delete(x.keys, value)
	}
}

// find returns the keys of the objects that have a value.
func (x *keyIndex) find(value string) []string {
	set, ok := x.keys[value]
	switch {
	case !ok:
		return nil
	case set.more == nil:
		return []string{set.one}
	}
	return slices.Collect(maps.Keys(set.more))
}
