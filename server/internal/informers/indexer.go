package informers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// The methods of cache.Indexer.
var _ cache.Indexer = &ordered[runtime.Object]{}

// Add implements cache.Store.
func (s *ordered[V]) Add(obj any) error {
	key, err := storeKey(obj)
	if err != nil {
		return err
	}
	return s.set(key, obj.(runtime.Object))
}

// Update implements cache.Store.
func (s *ordered[V]) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.Store.
func (s *ordered[V]) Delete(obj any) error {
	key, err := storeKey(obj)
	if err != nil {
		return err
	}
	return s.remove(key, nil)
}

// List implements cache.Store.
func (s *ordered[V]) List() []any {
	s.mu.RLock()
	all := s.below("")
	s.mu.RUnlock()
	return s.objects(all)
}

func (s *ordered[V]) objects(entries []item[V]) []any {
	objects := make([]any, len(entries))
	for i, e := range entries {
		objects[i] = s.form.object(e.key, e.value)
	}
	return objects
}

// ListKeys implements cache.Store.
func (s *ordered[V]) ListKeys() []string { return s.keys() }

// Get implements cache.Store.
func (s *ordered[V]) Get(obj any) (any, bool, error) {
	key, err := storeKey(obj)
	if err != nil {
		return nil, false, err
	}
	return s.GetByKey(key)
}

// GetByKey implements cache.Store.
func (s *ordered[V]) GetByKey(key string) (any, bool, error) {
	obj, ok := s.get(key)
	if !ok {
		return nil, false, nil
	}
	return obj, true, nil
}

// Replace implements cache.Store.
func (s *ordered[V]) Replace(objects []any, _ string) error {
	left := map[string]bool{}
	for _, obj := range objects {
		key, err := storeKey(obj)
		if err != nil {
			return err
		}
		left[key] = true
		if err := s.set(key, obj.(runtime.Object)); err != nil {
			return err
		}
	}
	for _, key := range s.keys() {
		if !left[key] {
			_ = s.remove(key, nil) // always nil
		}
	}
	return nil
}

// Resync implements cache.Store.
func (s *ordered[V]) Resync() error { return nil }

// Bookmark implements cache.Store. Informer.Version has the resource version.
func (s *ordered[V]) Bookmark(string) {}

// LastStoreSyncResourceVersion implements cache.Store.
func (s *ordered[V]) LastStoreSyncResourceVersion() string { return "" }

// ByIndex implements cache.Indexer.
func (s *ordered[V]) ByIndex(index, value string) ([]any, error) {
	found, err := s.found(index, value)
	return s.objects(found), err
}

// IndexKeys implements cache.Indexer.
func (s *ordered[V]) IndexKeys(index, value string) ([]string, error) {
	found, err := s.found(index, value)
	keys := make([]string, len(found))
	for i, e := range found {
		keys[i] = e.key
	}
	return keys, err
}

// Index implements cache.Indexer.
func (s *ordered[V]) Index(index string, obj any) ([]any, error) {
	of := s.GetIndexers()[index]
	if of == nil {
		return nil, fmt.Errorf("the index %s does not exist", index)
	}
	values, err := of(obj)
	if err != nil {
		return nil, err
	}
	found := map[string]item[V]{}
	for _, value := range values {
		entries, err := s.found(index, value)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			found[e.key] = e
		}
	}
	all := make([]item[V], 0, len(found))
	for _, e := range found {
		all = append(all, e)
	}
	return s.objects(all), nil
}

// ListIndexFuncValues implements cache.Indexer.
func (s *ordered[V]) ListIndexFuncValues(index string) []string {
	switch index {
	case byCluster:
		return s.prefixes("|")
	case byNamespace:
		return s.prefixes("/")
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if x := s.indexes[index]; x != nil {
		return slices.Collect(maps.Keys(x.keys))
	}
	return nil
}

// prefixes returns what the keys have before a separator, once each. Keys without the separator are left out.
func (s *ordered[V]) prefixes(separator string) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []string
	s.tree.Ascend(func(e item[V]) bool {
		if prefix, _, ok := strings.Cut(e.key, separator); ok && (len(all) == 0 || all[len(all)-1] != prefix) {
			all = append(all, prefix)
		}
		return true
	})
	return all
}

// GetIndexers implements cache.Indexer.
func (s *ordered[V]) GetIndexers() cache.Indexers {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.indexers)
}

// AddIndexers implements cache.Indexer.
func (s *ordered[V]) AddIndexers(indexers cache.Indexers) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range indexers {
		if s.indexers[name] != nil {
			return fmt.Errorf("the index %s exists", name)
		}
	}
	for name, of := range indexers {
		index := newKeyIndex(of)
		for _, e := range s.below("") {
			index.replace(strings.Clone(e.key), nil, s.form.peek(e.key, e.value))
		}
		s.indexers[name], s.indexes[name] = of, index
	}
	return nil
}
