package storage

import (
	"bytes"
	"context"
	"hash/maphash"
	"iter"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
)

const (
	// probed is the number of objects of a collection of unknown size that are read first.
	probed = 8
	// grows is the expected relative growth of the number of objects in a collection, and larger the multiple of the average size above
	// which a written object makes the size of its collection unknown.
	grows, larger = 4, 4
	// collections is the number of slots in sizes. Collections that share a slot replace each other.
	collections = 8192
)

// sizes records how large collections were when they were last listed, so that a list reserves memory before it is read. Its own size is
// limited for the whole process. A collection of unknown size is read in two steps: some objects, and then the rest.
type sizes struct {
	seed maphash.Seed
	mu   sync.Mutex
	of   [collections]size
	// writes counts the writes of this server to the collections of a slot.
	writes [collections]uint32
}

type size struct {
	prefix  uint64 // its hash
	objects int64
	average int64 // weight of an object
}

func newSizes() *sizes { return &sizes{seed: maphash.MakeSeed()} }

// slot returns the slot of a collection.
func (s *sizes) slot(prefix string) uint64 { return maphash.String(s.seed, prefix) % collections }

// changes returns the number of writes that changed has recorded for a collection, or for one that shares its slot.
func (s *sizes) changes(prefix string) uint32 {
	slot := s.slot(prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes[slot]
}

// changed records that a write of an object has ended, successfully or not, for the collections of its namespace and of its cluster.
func (s *sizes) changed(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash := range s.collectionsOf(key) {
		s.writes[hash%collections]++
	}
}

// collectionsOf returns the hashes of the collections of an object: those of its namespace, and of its cluster.
func (s *sizes) collectionsOf(key string) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for range 2 {
			i := strings.LastIndexByte(key, '/')
			if i < 0 || !yield(maphash.String(s.seed, key[:i+1])) {
				return
			}
			key = key[:i]
		}
	}
}

func (s *sizes) get(prefix string) (size, bool) {
	hash := maphash.String(s.seed, prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.of[hash%collections]
	return known, known.prefix == hash && known.objects > 0
}

func (s *sizes) put(prefix string, objects, average int64) {
	hash := maphash.String(s.seed, prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[hash%collections] = size{hash, objects, average}
}

// written drops the collections of an object that is much larger than the others.
func (s *sizes) written(key string, length int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for hash := range s.collectionsOf(key) {
		if known := &s.of[hash%collections]; known.prefix == hash && answered*int64(length) > larger*known.average {
			*known = size{}
		}
	}
}

// list reads a list of kv, and reserves memory for it in the queue of the request of ctx.
func (s *sizes) list(ctx context.Context, kv etcdkubernetes.Interface, prefix string,
	opts etcdkubernetes.ListOptions) (etcdkubernetes.ListResponse, error) {
	t := fairqueue.From(ctx)
	if t == nil {
		return kv.List(ctx, prefix, opts)
	}
	limited := func(n int64) etcdkubernetes.ListOptions {
		some := opts
		if some.Limit == 0 || some.Limit > n {
			some.Limit = n
		}
		return some
	}
	some, taken := limited(probed), int64(0)
	if known, ok := s.get(prefix); ok {
		some = limited(known.objects + known.objects/grows + probed)
		taken = known.average * min(some.Limit, known.objects)
		if err := t.Take(taken); err != nil {
			return etcdkubernetes.ListResponse{}, err
		}
	}
	response, err := kv.List(ctx, prefix, some)
	if err != nil {
		return response, err
	}
	read := int64(len(response.Kvs))
	average := weight(response.Kvs) / max(1, read)
	if opts.Continue == "" {
		s.put(prefix, response.Count, average)
	}
	missing := response.Count - read
	if opts.Limit > 0 {
		missing = min(missing, opts.Limit-read)
	}
	if missing > 0 && read > 0 {
		if err := t.Take(average * missing); err != nil {
			return response, err
		}
		taken += average * missing
		rest := opts
		if rest.Continue = string(response.Kvs[read-1].Key) + "\x00"; opts.Limit > 0 {
			rest.Limit = opts.Limit - read
		}
		if opts.Revision == 0 {
			rest.Revision = response.Revision
		}
		more, err := kv.List(ctx, prefix, rest)
		if err != nil {
			return more, err
		}
		response.Kvs = append(response.Kvs, more.Kvs...)
		if opts.Continue == "" {
			s.put(prefix, response.Count, weight(response.Kvs)/int64(len(response.Kvs)))
		}
	}
	return response, t.Take(weight(response.Kvs) - taken)
}

const (
	// answered is the minimum memory in bytes for each stored byte while the response is written.
	answered = 2
	// unpacked and decrypted are the same for compressed and encrypted objects.
	unpacked, decrypted = 12, 6
	// ofMap and ofField are the memory of a map, and of an entry of a map or a list, besides their content.
	ofMap, ofField = 350, 60
)

// weight returns the approximate memory for a response with objects.
func weight(kvs []*mvccpb.KeyValue) int64 {
	sum := int64(0)
	for _, kv := range kvs {
		sum += weightOf(kv.Value)
	}
	return sum
}

func weightOf(value []byte) int64 {
	length := int64(len(value))
	switch {
	case length > 0 && value[0] == '{':
		return answered*length + ofMap*int64(bytes.Count(value, []byte{'{'})) + ofField*int64(bytes.Count(value, []byte{','}))
	case bytes.HasPrefix(value, []byte("k8s\x00")):
		return answered * length
	case bytes.HasPrefix(value, []byte("k8s:enc:")):
		return decrypted * length
	}
	return unpacked * length
}
