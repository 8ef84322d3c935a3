package storage

import (
	"cmp"
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
)

// member is a watch that reads a stream: its own stream at first, and the stream of its keys as soon as possible.
//
// Invariants:
//   - results receives every event later than the start version once, in the order of etcd. Existing objects, if requested, come first.
//   - A member moves from its own watch of etcd to the stream of its keys only after a bookmark: it has received everything up to the
//     version of the bookmark, and skips that in the new stream. join enters the new stream and leaves the old one in one step.
//   - The server sends 410 only to clients, when they begin or after the existing objects, if their version is older than history allows
//     and the stream of the keys does not reach back to it. Etcd also sends 410 for a compacted version.
//   - A watch that the budget ends gets no error: results is closed, and the client resumes at the last version that it has received.
//   - Only the goroutine that delivers writes at and passed, after watch has returned. The budget reads them.
type member struct {
	streams  *streams
	keys     streamKeys
	opts     storage.ListOptions
	account  string
	tenant   string   // the account for the budget
	consumer Consumer // nil if the server itself reads
	results  chan watch.Event
	ctx      context.Context
	stop     context.CancelFunc
	ended    atomic.Bool   // by the budget
	idle     chan struct{} // receives a value when all events are passed, if it is not nil

	at             atomic.Pointer[entry]  // what it reads next
	passed         atomic.Pointer[passed] // nil until it has passed an event
	previous, next *member                // of its stream
}

// buffered is the number of events that wait in a watch until they are read.
const buffered = 16

// passed contains the start positions of events that a member has passed and may still hold: those that wait to be read, the one
// before them, which may be in transit to the client, and the one after them, which is about to wait.
type passed struct {
	count atomic.Uint64
	from  [buffered + 2]atomic.Int64
}

// watch returns the events of keys from opts.ResourceVersion on, until ctx ends.
func (s *streams) watch(ctx context.Context, keys streamKeys, opts storage.ListOptions) (watch.Interface, error) {
	version, err := storage.APIObjectVersioner{}.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	m := &member{streams: s, keys: keys, opts: opts, account: accountOf(ctx), results: make(chan watch.Event, buffered)}
	m.tenant = cmp.Or(fairqueue.From(ctx).Account(), m.account)
	m.consumer, _ = ctx.Value(consumerKey{}).(Consumer)
	m.ctx, m.stop = context.WithCancel(ctx)
	deliver, err := m.begin(version)
	if err != nil {
		m.stop()
		return nil, err
	}
	flowcontrol.WatchInitialized(ctx)
	go func() {
		defer close(m.results)
		defer m.stop()
		deliver()
	}()
	return m, nil
}

// begin returns the function that delivers the events.
func (m *member) begin(version uint64) (deliver func(), err error) {
	switch {
	case !initial(m.opts):
		return m.continueAfter(version)
	case m.account != "":
		fairqueue.From(m.ctx).Lists()
		return m.fromSnapshot, nil
	}
	own, err := m.keys.storage.follow(m.ctx, m.keys.key, m.opts)
	return func() { m.catchUp(own) }, err
}

// initial reports whether a watch begins with the objects that exist.
func initial(opts storage.ListOptions) bool {
	if opts.SendInitialEvents != nil {
		return *opts.SendInitialEvents
	}
	return opts.ResourceVersion == "" || opts.ResourceVersion == "0"
}

// continueAfter returns the function that delivers the events after version: those of the stream of the keys, or of its own stream if the
// former does not reach back to version.
func (m *member) continueAfter(version uint64) (deliver func(), err error) {
	if version > 0 && !m.keys.storage.unshared {
		if st, at, err := m.streams.join(m, nil, version); err != nil || st != nil {
			return func() { m.follow(st, at, version, false) }, err
		}
	}
	if m.tooOld(version) {
		return func() { m.deliver(errorEvent(expired(version))) }, nil
	}
	st, at, err := m.streams.alone(m, version)
	return func() { m.follow(st, at, version, !m.keys.storage.unshared) }, err
}

// tooOld reports whether a version is too old for a client. It is never too old for the server itself, which would have to list
// all clusters again.
func (m *member) tooOld(version uint64) bool {
	return m.account != "" && version > 0 && m.streams.history.tooOld(version)
}

// fromSnapshot delivers the existing objects, and then the changes.
func (m *member) fromSnapshot() {
	m.idle = make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(m.ctx)
	source := &snapshot{storage: m.keys.storage, key: m.keys.key, opts: m.opts, read: m.idle, ctx: ctx, cancel: cancel,
		results: make(chan watch.Event)}
	st := newStream(source, cancel, m.streams.budget, 0)
	at := st.enter(m)
	go source.run()
	go st.read()
	m.follow(st, at, 0, false)
	fairqueue.From(m.ctx).Listed()
	m.idle = nil
	if source.version == 0 || m.ctx.Err() != nil {
		return
	}
	deliver, err := m.continueAfter(source.version)
	if err != nil {
		m.deliver(errorEvent(err))
		return
	}
	deliver()
}

// catchUp delivers the events of a watch of etcd until a bookmark at which the member can join the stream. The watches of the server
// and of administrators begin in this way: etcd buffers their unread events.
func (m *member) catchUp(own watch.Interface) {
	defer own.Stop()
	for event := range own.ResultChan() {
		if leavesOut(own, event) {
			continue
		}
		if !m.deliver(event) {
			return
		}
		if event.Type != watch.Bookmark {
			continue
		}
		version := versionOf(event)
		if st, at, err := m.streams.join(m, nil, version); err == nil && st != nil {
			own.Stop()
			m.follow(st, at, version, false)
			return
		}
	}
}

// follow delivers the events of a stream that are later than version. If joins is set, it continues with the stream of the keys as
// soon as possible.
func (m *member) follow(st *stream, at *entry, version uint64, joins bool) {
	defer func() { m.streams.leave(m, st) }()
	for m.await(at) && at.next != nil {
		event := at.event
		if m.wants(at, version) && !m.send(event, at.before) {
			return
		}
		at = at.next
		m.at.Store(at)
		if !joins || event.Type != watch.Bookmark {
			continue
		}
		reached := versionOf(event)
		if joined, from, err := m.streams.join(m, st, reached); err == nil && joined != nil {
			st, at, version, joins = joined, from, reached, false
		}
	}
}

// await waits until an entry is filled; it returns false if the watch has ended.
func (m *member) await(e *entry) bool {
	if m.idle != nil {
		select {
		case <-e.filled:
			return true
		case m.idle <- struct{}{}:
		default:
		}
	}
	select {
	case <-e.filled:
		return true
	case <-m.ctx.Done():
		return false
	}
}

func (m *member) wants(e *entry, version uint64) bool {
	switch e.event.Type {
	case watch.Error:
		return true
	case watch.Bookmark:
		return m.opts.Predicate.AllowWatchBookmarks && e.version > version
	default:
		return e.version > version
	}
}

// send delivers an event that begins at a position of the stream.
func (m *member) send(event watch.Event, from int64) bool {
	p := m.passed.Load()
	if p == nil {
		p = &passed{}
		m.passed.Store(p)
	}
	n := p.count.Load()
	p.from[n%uint64(len(p.from))].Store(from)
	if !m.deliver(event) {
		return false
	}
	p.count.Store(n + 1)
	return true
}

func (m *member) deliver(event watch.Event) bool {
	select {
	case m.results <- event:
		return true
	case <-m.ctx.Done():
		return false
	}
}

// place sets at as the position that the member reads next; passed positions keep their distance to it.
func (m *member) place(at *entry) {
	if before, p := m.at.Load(), m.passed.Load(); before != nil && p != nil {
		for i := range p.from {
			p.from[i].Add(at.before - before.before)
		}
	}
	m.at.Store(at)
}

// oldest returns the start position of the oldest event that the member holds.
func (m *member) oldest() int64 {
	at, p := m.at.Load(), m.passed.Load()
	if p == nil {
		return at.before
	}
	held := uint64(len(m.results))
	if m.written() > 0 {
		held++
	}
	n := p.count.Load()
	if held = min(held, n); held == 0 {
		return at.before
	}
	return p.from[(n-held)%uint64(len(p.from))].Load()
}

// written returns the bytes in transit to the client: being written, and in the buffer of the encoder.
func (m *member) written() int64 {
	if m.consumer == nil {
		return 0
	}
	return 2 * int64(m.consumer.Pending())
}

// ResultChan implements watch.Interface.
func (m *member) ResultChan() <-chan watch.Event { return m.results }

// Stop implements watch.Interface.
func (m *member) Stop() { m.stop() }
