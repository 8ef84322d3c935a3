package informers

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

// plain is a store of objects as they are, without indexes.
type plain struct {
	mu      sync.RWMutex
	objects map[string]runtime.Object
}

func (s *plain) get(key string) (runtime.Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	obj, ok := s.objects[key]
	return obj, ok
}

func (s *plain) peek(key string) (runtime.Object, bool) { return s.get(key) }

func (s *plain) has(key string) bool {
	_, ok := s.get(key)
	return ok
}

func (s *plain) set(key string, obj runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = obj
	return nil
}

func (s *plain) remove(key string, _ runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
	return nil
}

func (s *plain) keys() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.objects))
}

func (s *plain) unpacked(obj runtime.Object) runtime.Object { return obj }
