package informers

import (
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// form is how a store keeps objects: as they are, or packed.
type form[V any] interface {
	// keep returns the value of an object, and its key, which may share memory with the value.
	keep(key string, obj runtime.Object) (string, V)
	// object returns the object of a value that keep has returned. peek is object without remembering the object.
	object(key string, value V) runtime.Object
	peek(key string, value V) runtime.Object
	// forget forgets the object that is remembered for a key.
	forget(key string)
	// unpacked returns an object that arrives, as object would return it.
	unpacked(obj runtime.Object) runtime.Object
}

// ordered is a store in the order of the keys, in which the objects of a cluster, and those of a namespace, are neighbours. The indexes
// byCluster and byNamespace are ranges of it and take no memory. It implements cache.Indexer.
//
// Invariants:
//   - The tree has one entry for each key of an object, and indexes has the keys of exactly these objects. mu guards both.
//   - Values are never changed. Readers get them with mu locked, and make objects of them without.
type ordered[V any] struct {
	form form[V]

	mu       sync.RWMutex
	tree     *btree.BTree[item[V]]
	indexers cache.Indexers
	indexes  map[string]*keyIndex // without byCluster and byNamespace
}

// item is an object in a store.
type item[V any] struct {
	key   string
	value V
}

// degree is half the number of entries of a node of the tree: larger nodes waste less memory, and take longer to change.
const degree = 16

func newOrdered[V any](f form[V], indexers cache.Indexers) *ordered[V] {
	s := &ordered[V]{
		form:     f,
		tree:     btree.New(degree, func(a, b item[V]) bool { return a.key < b.key }),
		indexers: cache.Indexers{byCluster: clusterIndex, byNamespace: namespaceIndex},
		indexes:  map[string]*keyIndex{},
	}
	for name, of := range indexers {
		s.indexers[name], s.indexes[name] = of, newKeyIndex(of)
	}
	return s
}

// find returns the entry of a key.
func (s *ordered[V]) find(key string) (item[V], bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.tree.Get(item[V]{key: key})
}

func (s *ordered[V]) has(key string) bool {
	_, ok := s.find(key)
	return ok
}

func (s *ordered[V]) get(key string) (runtime.Object, bool) {
	e, ok := s.find(key)
	if !ok {
		return nil, false
	}
	return s.form.object(e.key, e.value), true
}

func (s *ordered[V]) peek(key string) (runtime.Object, bool) {
	e, ok := s.find(key)
	if !ok {
		return nil, false
	}
	return s.form.peek(e.key, e.value), true
}

func (s *ordered[V]) set(key string, obj runtime.Object) error {
	kept, value := s.form.keep(key, obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	before, existed := s.tree.ReplaceOrInsert(item[V]{kept, value})
	if len(s.indexes) == 0 {
		return nil
	}
	var old runtime.Object
	if existed {
		old = s.form.peek(before.key, before.value)
	}
	s.reindex(key, old, s.form.unpacked(obj))
	return nil
}

// reindex changes the indexes; mu is locked. An index keeps the key, so that it must not share memory with a value.
func (s *ordered[V]) reindex(key string, old, obj runtime.Object) {
	for _, index := range s.indexes {
		index.replace(key, old, obj)
	}
}

func (s *ordered[V]) remove(key string, _ runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, existed := s.tree.Delete(item[V]{key: key})
	if existed && len(s.indexes) > 0 {
		s.reindex(key, s.form.peek(before.key, before.value), nil)
	}
	s.form.forget(key)
	return nil
}

func (s *ordered[V]) keys() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	keys := make([]string, 0, s.tree.Len())
	s.tree.Ascend(func(e item[V]) bool {
		keys = append(keys, e.key)
		return true
	})
	return keys
}

func (s *ordered[V]) unpacked(obj runtime.Object) runtime.Object { return s.form.unpacked(obj) }

// below returns the entries whose keys begin with a prefix; mu is locked.
func (s *ordered[V]) below(prefix string) []item[V] {
	var found []item[V]
	s.tree.AscendGreaterOrEqual(item[V]{key: prefix}, func(e item[V]) bool {
		if !strings.HasPrefix(e.key, prefix) {
			return false
		}
		found = append(found, e)
		return true
	})
	return found
}

// found returns the entries that an index maps to a value.
func (s *ordered[V]) found(index, value string) ([]item[V], error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch index {
	case byCluster:
		return s.below(value + "|"), nil
	case byNamespace:
		return s.below(value + "/"), nil
	}
	x := s.indexes[index]
	if x == nil {
		return nil, fmt.Errorf("the index %s does not exist", index)
	}
	keys := x.find(value)
	found := make([]item[V], 0, len(keys))
	for _, key := range keys {
		if e, ok := s.tree.Get(item[V]{key: key}); ok {
			found = append(found, e)
		}
	}
	return found, nil
}
