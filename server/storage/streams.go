package storage

import (
	"context"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// streams let the watches of the same keys follow one watch of etcd: an event is read, decoded and serialized once, however many
// they are. There is a stream for each set of keys that is watched just now, and none for any other.
type streams struct {
	mu   sync.Mutex
	open map[streamKeys]*stream
}

// streamKeys are what a watch of one storage selects.
type streamKeys struct {
	storage        *clusterStorage
	key            string
	recursive      bool
	labels, fields string
}

const (
	// remembered is how many events back a watch may begin that joins a stream.
	remembered = 64
	// behind is how many events a watch may leave unread before it is ended; its client begins again where it was.
	behind = 10000
)

// stream is a list of events that grows at its end. Each member walks along it at its own pace, and what all have passed is
// garbage.
type stream struct {
	source watch.Interface
	cancel context.CancelFunc

	mu      sync.Mutex
	members int
	floor   uint64 // every event of a later version is in the list
	first   *entry // the oldest event that a new member may want
	last    *entry // the one that comes next
}

// entry is one event; event and next may be read when filled is closed.
type entry struct {
	number  uint64
	filled  chan struct{}
	event   watch.Event
	version uint64
	next    *entry // nil if the stream has ended
}

func newStreams() *streams { return &streams{open: map[streamKeys]*stream{}} }

// join returns the stream of keys and the first of its events that may be later than version. It opens the stream if there is none. It
// returns nil if the stream does not reach back so far.
func (s *streams) join(ctx context.Context, keys streamKeys, version uint64, opts storage.ListOptions) (*stream, *entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.open[keys]
	if st == nil {
		var err error
		if st, err = s.start(ctx, keys, version, opts); err != nil {
			return nil, nil, err
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if version < st.floor {
		return nil, nil, nil
	}
	st.members++
	return st, st.first, nil
}

func (s *streams) start(ctx context.Context, keys streamKeys, version uint64, opts storage.ListOptions) (*stream, error) {
	background := context.Background() // it may outlive the request that opens it
	if cluster, ok := logicalcluster.From(ctx); ok {
		background = logicalcluster.WithCluster(background, cluster)
	}
	background, cancel := context.WithCancel(background)
	opts.ResourceVersion = strconv.FormatUint(version, 10)
	opts.ResourceVersionMatch, opts.SendInitialEvents = "", nil
	opts.ProgressNotify, opts.Predicate.AllowWatchBookmarks = true, true
	source, err := keys.storage.Interface.Watch(background, keys.key, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	next := &entry{filled: make(chan struct{})}
	st := &stream{source: source, cancel: cancel, floor: version, first: next, last: next}
	s.open[keys] = st
	go func() {
		st.read()
		s.drop(keys, st)
	}()
	return st, nil
}

// leave ends the stream when its last member leaves.
func (s *streams) leave(keys streamKeys, st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.members--; st.members > 0 {
		return
	}
	st.cancel()
	st.source.Stop()
	if s.open[keys] == st {
		delete(s.open, keys)
	}
}

// drop lets nobody join a stream any more.
func (s *streams) drop(keys streamKeys, st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[keys] == st {
		delete(s.open, keys)
	}
}

// read appends events until there are no more.
func (st *stream) read() {
	for event := range st.source.ResultChan() {
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
	version := versionOf(event)
	st.mu.Lock()
	defer st.mu.Unlock()
	e := st.last
	alone := st.members < 2
	if !alone {
		event.Object = share(event.Object)
	}
	e.event, e.version = event, version
	e.next = &entry{number: e.number + 1, filled: make(chan struct{})}
	st.last = e.next
	switch {
	case alone: // the only member may do with the object what it likes, so nobody else can have it
		st.floor, st.first = max(st.floor, version), st.last
	case st.last.number-st.first.number > remembered:
		st.floor, st.first = max(st.floor, st.first.version), st.first.next
	}
	close(e.filled)
}

// tooFar tells whether a member that is at e has left too much unread.
func (st *stream) tooFar(e *entry) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.last.number-e.number > behind
}

// member is a watch that follows a stream as soon as it can.
type member struct {
	streams *streams
	keys    streamKeys
	opts    storage.ListOptions
	results chan watch.Event
	ctx     context.Context
	stop    context.CancelFunc
}

// watch returns what the storage of keys has to tell from opts.ResourceVersion on, until ctx ends.
func (s *streams) watch(ctx context.Context, keys streamKeys, opts storage.ListOptions) (watch.Interface, error) {
	m := &member{streams: s, keys: keys, opts: opts, results: make(chan watch.Event, 16)}
	m.ctx, m.stop = context.WithCancel(ctx)
	if version, ok := after(opts); ok {
		st, at, err := s.join(ctx, keys, version, opts)
		if err != nil {
			m.stop()
			return nil, err
		}
		if st != nil {
			flowcontrol.WatchInitialized(ctx)
			go func() {
				defer close(m.results)
				m.follow(st, at, version)
			}()
			return m, nil
		}
	}
	own, err := keys.storage.Interface.Watch(m.ctx, keys.key, opts)
	if err != nil {
		m.stop()
		return nil, err
	}
	go func() {
		defer close(m.results)
		m.catchUp(own)
	}()
	return m, nil
}

// after returns the version whose successors a watch wants, unless it wants to know first what there is.
func after(opts storage.ListOptions) (uint64, bool) {
	version, err := strconv.ParseUint(opts.ResourceVersion, 10, 64)
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	return version, err == nil && version > 0 && !initial
}

// catchUp delivers the events of a watch of its own until a bookmark tells that it can go on with the stream.
func (m *member) catchUp(own watch.Interface) {
	defer own.Stop()
	for event := range own.ResultChan() {
		if !m.send(event) {
			return
		}
		if event.Type != watch.Bookmark {
			continue
		}
		version := versionOf(event)
		if st, at, err := m.streams.join(m.ctx, m.keys, version, m.opts); err == nil && st != nil {
			own.Stop()
			m.follow(st, at, version)
			return
		}
	}
}

// follow delivers the events of the stream that are later than version.
func (m *member) follow(st *stream, at *entry, version uint64) {
	defer m.streams.leave(m.keys, st)
	for {
		select {
		case <-at.filled:
		case <-m.ctx.Done():
			return
		}
		if at.next == nil || st.tooFar(at) {
			return
		}
		if m.wants(at, version) && !m.send(at.event) {
			return
		}
		at = at.next
	}
}

func (m *member) wants(e *entry, version uint64) bool {
	switch e.event.Type {
	case watch.Error:
		return true
	case watch.Bookmark:
		return m.opts.Predicate.AllowWatchBookmarks && e.version > version
	}
	return e.version > version
}

func (m *member) send(event watch.Event) bool {
	select {
	case m.results <- event:
		return true
	case <-m.ctx.Done():
		return false
	}
}

// ResultChan implements watch.Interface.
func (m *member) ResultChan() <-chan watch.Event { return m.results }

// Stop implements watch.Interface.
func (m *member) Stop() { m.stop() }
