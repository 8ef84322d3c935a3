package storage

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// streams let all watches of the same keys share one watch of etcd: an event is read, decoded and serialized once, however many
// watches there are. A stream exists only for sets of keys that are being watched.
//
// Invariants:
//   - open has at most one stream for the same keys. Streams of alone and of a snapshot are not in open and have one member.
//   - exit ends a stream with its last member, and removes it from open. drop removes a stream that etcd has ended.
//   - streamKeys determine the events: restrictions of a context are part of the labels, see narrow. Clients with different restrictions
//     do not share a stream.
//   - Locks are taken in this order: streams.mu, stream.mu of a stream in open, stream.mu of another stream, budget.mu.
type streams struct {
	budget  *budget
	history *history

	mu   sync.Mutex
	open map[streamKeys]*stream
}

// streamKeys are the keys that a watch of one storage selects.
type streamKeys struct {
	storage        *clusterStorage
	key            string
	recursive      bool
	labels, fields string
}

const (
	// remembered is the number of past events from which a watch that joins a stream can begin, if they take at most
	// rememberedBytes.
	remembered, rememberedBytes = 64, 256 << 10
	// behind is the number of unread events after which a watch is ended; its client resumes at its position.
	behind = 10000
)

// stream is a list of events that grows at its end. Each member reads it at its own pace; events that all members have
// passed are garbage.
//
// Invariants:
//   - Entries have the order in which etcd sent the events. add fills the last entry and appends the next one. A filled entry never
//     changes. At the end, read closes the last entry without a next one.
//   - Every event that has arrived with a version later than floor is in the entries from first on: add raises floor when it drops an
//     entry.
//   - A member joins at version only if version >= floor. It begins at first and skips entries up to version. Therefore it sees every
//     later event once, in order (TestAWatchMissesNoEventWhereverItBegins).
//   - Events that arrive for several members are shared and read-only. An event that arrives for a single member is not shared, because
//     the member may modify its object; add drops it from the entries for new members.
//
// For example, a stream begins after version 4, and events 5 and 6 arrive for a single member: floor is 6, and first is last. A watch from
// 6 can join. A watch from 5 cannot: it gets its own stream, and joins at a bookmark of 6 or later.
type stream struct {
	source watch.Interface
	cancel context.CancelFunc
	budget *budget
	noted  atomic.Bool // by the budget

	mu      sync.Mutex
	members *member // the first of a list
	floor   uint64  // all events of later versions are in the list
	first   *entry  // the oldest event that a new member can request
	last    *entry  // the next event
	kept    int64   // bytes of the events from first on, as reported to the budget
}

// entry is one event; event and next may be read when filled is closed.
type entry struct {
	number  uint64
	before  int64 // bytes of all events before it, including their serialized forms; grows until the entry is filled
	filled  chan struct{}
	event   watch.Event
	version uint64
	next    *entry // nil if the stream has ended
}

func newStreams(b *budget) *streams {
	return &streams{budget: b, history: newHistory(historyBytes), open: map[streamKeys]*stream{}}
}

// join makes m a member of the stream of its keys, in place of the stream from if that is not nil, and returns the first event that can be
// later than version. It opens the stream if it does not exist and version is not too old for m. It returns nil if the stream does not
// reach back to version.
func (s *streams) join(m *member, from *stream, version uint64) (*stream, *entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.open[m.keys]
	if st == nil && m.tooOld(version) {
		return nil, nil, nil
	}
	if st == nil {
		background := context.Background() // the stream may outlive the request that opens it
		if cluster, ok := logicalcluster.From(m.ctx); ok {
			background = logicalcluster.WithCluster(background, cluster)
		}
		var err error
		if st, err = s.start(sharingEvents(ofTenant(background, m.tenant)), m.keys, version, m.opts); err != nil {
			return nil, nil, err
		}
		s.open[m.keys] = st
		go func() {
			st.read()
			s.drop(m.keys, st)
		}()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if version < st.floor {
		return nil, nil, nil
	}
	if from != nil {
		s.exit(m, from)
	}
	return st, st.enter(m), nil
}

// alone makes m the only member of a stream that begins after version, and that other watches cannot join.
func (s *streams) alone(m *member, version uint64) (*stream, *entry, error) {
	st, err := s.start(ofTenant(m.ctx, m.tenant), m.keys, version, m.opts)
	if err != nil {
		return nil, nil, err
	}
	at := st.enter(m)
	go st.read()
	return st, at, nil
}

// start opens a stream of the events after version, which arrive when it is read. Zero means the current version.
func (s *streams) start(ctx context.Context, keys streamKeys, version uint64, opts storage.ListOptions) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.SendInitialEvents = strconv.FormatUint(version, 10), "", nil
	if version == 0 {
		opts.SendInitialEvents = new(bool)
	}
	opts.ProgressNotify, opts.Predicate.AllowWatchBookmarks = true, true
	source, err := keys.storage.follow(ctx, keys.key, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	return newStream(source, cancel, s.budget, version), nil
}

func newStream(source watch.Interface, cancel context.CancelFunc, b *budget, floor uint64) *stream {
	next := &entry{filled: make(chan struct{})}
	return &stream{source: source, cancel: cancel, budget: b, floor: floor, first: next, last: next}
}

// leave ends the membership of m, and the stream with its last member.
func (s *streams) leave(m *member, st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exit(m, st)
}

func (s *streams) exit(m *member, st *stream) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.exit(m); st.members != nil {
		return
	}
	st.cancel()
	st.source.Stop()
	st.first = st.last
	st.remember()
	s.budget.forget(st)
	if s.open[m.keys] == st {
		delete(s.open, m.keys)
	}
}

// drop lets no further watch join a stream.
func (s *streams) drop(keys streamKeys, st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[keys] == st {
		delete(s.open, keys)
	}
}

// enter makes m a member that begins with the oldest remembered event, and returns that event.
func (st *stream) enter(m *member) *entry {
	at := st.first
	m.place(at)
	m.previous, m.next = nil, st.members
	if m.next != nil {
		m.next.previous = m
	}
	st.members = m
	return at
}

func (st *stream) exit(m *member) {
	if m.previous != nil {
		m.previous.next = m.next
	} else {
		st.members = m.next
	}
	if m.next != nil {
		m.next.previous = m.previous
	}
	m.previous, m.next = nil, nil
}

// read appends events until there are no more.
func (st *stream) read() {
	for event := range st.source.ResultChan() {
		if leavesOut(st.source, event) {
			continue
		}
		st.append(event)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	close(st.last.filled)
}

// versionOf returns zero for an error.
func versionOf(event watch.Event) uint64 {
	version, _ := storage.APIObjectVersioner{}.ObjectResourceVersion(event.Object)
	return version
}

func (st *stream) append(event watch.Event) {
	version, size := versionOf(event), st.budget.sizers.sizeOf(event.Object)
	st.add(event, version, size)
	st.budget.grew(st, size)
}

func (st *stream) add(event watch.Event, version uint64, size int64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.last
	alone := st.members == nil || st.members.next == nil
	if !alone {
		event.Object = share(event.Object, st.grow)
	}
	e.event, e.version = event, version
	e.next = &entry{number: e.number + 1, before: e.before + size, filled: make(chan struct{})}
	st.last = e.next
	for st.first != st.last && (alone || !st.remembers(st.first)) {
		if st.first == e {
			st.floor = max(st.floor, version)
		} else {
			st.floor = max(st.floor, st.first.version)
		}
		st.first = st.first.next
	}
	st.remember()
	close(e.filled)
}

// remembers reports whether an event is kept for watches that join later.
func (st *stream) remembers(e *entry) bool {
	size := st.last.before - e.before
	return st.last.number-e.number <= remembered && size <= rememberedBytes && st.budget.remembered.Load()-st.kept+size <= allRemembered
}

// remember reports the bytes that are kept for watches that join later to the budget.
func (st *stream) remember() {
	size := st.last.before - st.first.before
	st.budget.remembered.Add(size - st.kept)
	st.kept = size
}

// grow adds the size of a serialized form of an event. Every member that has not passed the last event may hold it.
func (st *stream) grow(size int64) {
	st.mu.Lock()
	st.last.before += size
	st.mu.Unlock()
	st.budget.grew(st, size)
}

// usage returns the memory that the members hold; the member that holds the most is last.
func (st *stream) usage() *usage {
	st.mu.Lock()
	defer st.mu.Unlock()
	u := &usage{}
	for m := st.members; m != nil; m = m.next {
		if m.ended.Load() {
			continue
		}
		h := holding{member: m, bytes: st.last.before - m.oldest(), events: int64(st.last.number - m.at.Load().number), out: m.written()}
		u.members = append(u.members, h)
		u.written += h.out
	}
	slices.SortFunc(u.members, func(a, b holding) int { return cmp.Compare(a.bytes, b.bytes) })
	return u
}
