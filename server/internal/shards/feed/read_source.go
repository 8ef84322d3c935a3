package feed

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

// source reads one resource of all shards into the second store of its informer. It is the store of a reflector, which calls it from one
// goroutine.
type source struct {
	reader   *Reader
	informer *informers.Informer
	client   *readClient
	example  runtime.Object
	newList  func() runtime.Object
	// schemas is set for schemas, of which only metadata is read here.
	schemas *schemas

	once   sync.Once
	listed chan struct{} // closed after the first list

	mu     sync.Mutex // guards what follows
	cancel context.CancelFunc
	// current is when the last list, event or bookmark arrived.
	current time.Time
	// absent are the objects that the last list did not have, and since when.
	absent map[informers.OfferedKey]time.Time
	// shards are those of which the cache server has objects of this resource, with their number.
	shards map[string]int
}

var (
	_ cache.ReflectorStore         = (*source)(nil)
	_ cache.ResourceVersionUpdater = (*source)(nil)
)

// run lists and watches until ctx ends.
func (s *source) run(ctx context.Context) {
	for ctx.Err() == nil {
		reading, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		s.cancel = cancel
		s.mu.Unlock()
		lw := s.client.all(s.informer.Resource(), s.schemas != nil, s.newList)
		cache.NewReflectorWithOptions(lw, s.example, s,
			cache.ReflectorOptions{Name: "all-shards/" + s.informer.Resource().GroupResource().String()}).RunWithContext(reading)
		cancel()
	}
}

// again makes run list again.
func (s *source) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}

// Add implements cache.ReflectorStore.
func (s *source) Add(obj any) error { return s.set(obj, 1) }

// Update implements cache.ReflectorStore.
func (s *source) Update(obj any) error { return s.set(obj, 0) }

// UpdateResourceVersion implements cache.ResourceVersionUpdater, for every event and bookmark.
func (s *source) UpdateResourceVersion(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = s.reader.in.Clock.Now()
}

// lag returns for how long nothing has arrived.
func (s *source) lag(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.current)
}

// Resync implements cache.ReflectorStore.
func (s *source) Resync() error { return nil }

func (s *source) set(obj any, added int) error {
	r, ok := s.receive(obj)
	if !ok {
		return nil
	}
	s.mu.Lock()
	delete(s.absent, r.OfferedKey)
	s.shards[r.Shard] += added
	s.mu.Unlock()
	s.store(r)
	return nil
}

// receive returns an object as its shard has it, and false for one that is left out. An error would make the reflector list again, forever.
func (s *source) receive(obj any) (received, bool) {
	object, ok := obj.(runtime.Object)
	if !ok {
		return received{}, false
	}
	return s.reader.strings.receive(object, s.reader.in.Shard)
}

// store replaces the object that is held, if the received one is not older.
func (s *source) store(r received) {
	if s.schemas != nil {
		s.schemas.changed(r.Cluster)
		return
	}
	if held, ok := s.reader.in.Elsewhere.Offered(s.informer, r.OfferedKey); ok {
		was := positionOf(held)
		if now := positionOf(r.object); now == was && now.version > 0 || !now.follows(was, s.reader.registered(r.Shard)) {
			return
		}
	}
	s.report(s.reader.in.Elsewhere.Set(s.informer, r.Shard, r.object), r.OfferedKey)
}

// Delete implements cache.ReflectorStore.
func (s *source) Delete(obj any) error {
	r, ok := s.receive(obj)
	if !ok {
		return nil
	}
	s.mu.Lock()
	delete(s.absent, r.OfferedKey)
	if s.shards[r.Shard]--; s.shards[r.Shard] <= 0 {
		delete(s.shards, r.Shard)
	}
	s.mu.Unlock()
	held, ok := s.reader.in.Elsewhere.Offered(s.informer, r.OfferedKey)
	if !ok {
		return nil
	}
	is, registered := positionOf(held), s.reader.registered(r.Shard)
	switch {
	case !positionOf(r.object).follows(is, registered):
	case registered != "" && is.incarnation != registered:
		s.miss(r.OfferedKey)
	default:
		s.drop(r.OfferedKey)
	}
	return nil
}

// miss makes sweep remove an object later.
func (s *source) miss(key informers.OfferedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.absent == nil {
		s.absent = map[informers.OfferedKey]time.Time{}
	}
	s.absent[key] = s.reader.in.Clock.Now()
}

func (s *source) drop(key informers.OfferedKey) {
	s.report(s.reader.in.Elsewhere.Delete(s.informer, key.Shard, key.Key), key)
}

// Replace implements cache.ReflectorStore. It removes nothing: see sweep.
func (s *source) Replace(objs []any, _ string) error {
	present, shards := map[informers.OfferedKey]bool{}, map[string]int{}
	for _, obj := range objs {
		if r, ok := s.receive(obj); ok {
			present[r.OfferedKey] = true
			shards[r.Shard]++
			s.store(r)
		}
	}
	now := s.reader.in.Clock.Now()
	s.mu.Lock()
	s.shards, s.current = shards, now
	before := s.absent
	s.absent = map[informers.OfferedKey]time.Time{}
	for _, key := range s.reader.in.Elsewhere.AllOffered(s.informer) {
		if present[key] {
			continue
		}
		since, ok := before[key]
		if !ok {
			since = now
		}
		s.absent[key] = since
	}
	s.mu.Unlock()
	s.once.Do(func() { close(s.listed) })
	return nil
}

// addShards adds the shards of which the cache server has objects.
func (s *source) addShards(to map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for shard := range s.shards {
		to[shard] = true
	}
}

// sweep removes what has been absent for long, of shards that offer something.
func (s *source) sweep(now time.Time, offering map[string]bool, adopted map[string]time.Time) {
	s.mu.Lock()
	var gone []informers.OfferedKey
	for key, since := range s.absent {
		if at := adopted[key.Shard]; at.After(since) {
			since = at
		}
		if outlasted(now.Sub(since), offering[key.Shard]) {
			gone = append(gone, key)
			delete(s.absent, key)
		}
	}
	s.mu.Unlock()
	for _, key := range gone {
		s.drop(key)
	}
}

// outlasted reports whether an object is no longer offered that lists have not had for some time.
func outlasted(absent time.Duration, shardOffers bool) bool {
	return shardOffers && absent >= absentGrace
}

func (s *source) report(err error, key informers.OfferedKey) {
	if err != nil {
		utilruntime.HandleErrorWithContext(context.Background(), err, "Object of another shard is left out", decisionlog.Resource,
			s.informer.Resource().GroupResource(), decisionlog.Cluster, key.Cluster, decisionlog.Name, key.Name)
	}
}
