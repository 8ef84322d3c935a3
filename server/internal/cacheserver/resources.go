package cacheserver

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/storage"
)

// maxCached is the maximum number of cached resources whose storages are kept. Another one opens its storage again, which reads nothing.
const maxCached = 1024

// cachedKind is the kind of bookmarks of cached resources. Their objects have the kind that their shard writes.
const cachedKind = "CachedObject"

// resources are the storages of all resources.
type resources struct {
	backend *storage.Backend
	limits  *limits
	kinds   map[schema.GroupVersionResource]*resource

	mu     sync.Mutex
	cached *lru.Cache // of *resource, by cachedKey
}

// cachedKey identifies a cached resource.
type cachedKey struct {
	gvr      schema.GroupVersionResource
	identity string
}

func newResources(b *storage.Backend, l *limits) (*resources, error) {
	r := &resources{backend: b, limits: l, kinds: map[schema.GroupVersionResource]*resource{}, cached: lru.New(maxCached)}
	for _, k := range Kinds {
		s, _, err := b.Sharded(k.GroupVersionResource().GroupResource(), "", k.GroupVersionKind)
		if err != nil {
			return nil, err
		}
		r.kinds[k.GroupVersionResource()] = newResource(s, k.GroupVersionResource(), k.Kind, "", l)
	}
	return r, nil
}

// get returns the storage of the resource that a request addresses.
func (r *resources) get(t target) (*resource, bool) {
	if t.identity == "" {
		found, ok := r.kinds[t.gvr()]
		return found, ok && t.namespace == ""
	}
	if !mayBeCached(t.gvr(), t.identity) {
		return nil, false
	}
	key := cachedKey{t.gvr(), t.identity}
	r.mu.Lock()
	defer r.mu.Unlock()
	if found, ok := r.cached.Get(key); ok {
		return found.(*resource), true
	}
	s, _, err := r.backend.Sharded(t.gvr().GroupResource(), t.identity, t.gvr().GroupVersion().WithKind(cachedKind))
	if err != nil {
		return nil, false
	}
	found := newResource(s, t.gvr(), "", t.identity, r.limits)
	r.cached.Add(key, found)
	return found, true
}
