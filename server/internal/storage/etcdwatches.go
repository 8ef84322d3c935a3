package storage

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	"k8s.io/component-base/metrics"
)

// Limits of the events that have arrived from etcd and that a watch has not decoded, in bytes: for the watches of the same keys, and for
// all. The watches that are furthest behind end, and their clients resume at their last version.
const keysUndecoded, allUndecoded = 16 << 20, 64 << 20

// etcdWatches is a Watcher with which watches of the same keys share one watch of etcd, whatever their selectors are. Without it, etcd
// reads and sends an event once for each selector, and an embedded etcd keeps each of these in memory until it is sent.
//
// Invariants:
//   - Only watches with a context of sharingEvents share. All others are watches of the Watcher.
//   - open has at most one etcdWatch for the same keys. It ends with its last reader, or when etcd ends it.
//   - A reader gets each event from its revision on once, in order: it enters an etcdWatch only if that has not yet received such an
//     event. Until then, it reads a watch of etcd of its own.
//   - Responses are shared, and never change.
//   - Locks are taken in this order: etcdWatches.mu, etcdWatch.mu.
type etcdWatches struct {
	clientv3.Watcher
	keys, all int64
	ended     *metrics.CounterVec
	grown     atomic.Int64 // since the last check

	mu   sync.Mutex
	open map[etcdKeys]*etcdWatch
}

// etcdKeys are the keys of a watch of etcd, and the stream in which its events arrive.
type etcdKeys struct{ stream, from, to string }

// etcdWatch is a watch of etcd with several readers. Its responses are a list that grows at its end; each reader reads it at its own pace.
type etcdWatch struct {
	cancel context.CancelFunc

	mu      sync.Mutex
	readers map[*etcdReader]struct{}
	next    int64 // the revision from which no event has arrived
	last    *etcdResponse
	ended   bool
}

// etcdResponse is a response; response and next may be read when filled is closed.
type etcdResponse struct {
	before   int64 // bytes of all responses before it
	filled   chan struct{}
	response clientv3.WatchResponse
	next     *etcdResponse // nil if the watch has ended
}

func newEtcdWatches(of clientv3.Watcher, ended *metrics.CounterVec) *etcdWatches {
	return &etcdWatches{Watcher: of, keys: keysUndecoded, all: allUndecoded, ended: ended, open: map[etcdKeys]*etcdWatch{}}
}

// Watch implements clientv3.Watcher.
func (w *etcdWatches) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	p, shares := ctx.Value(paceKey{}).(*pacer)
	op := clientv3.OpGet(key, opts...)
	if !shares || op.Rev() == 0 {
		return w.Watcher.Watch(ctx, key, opts...)
	}
	sent, _ := metadata.FromOutgoingContext(ctx)
	r := &etcdReader{
		watches: w, keys: etcdKeys{fmt.Sprint(sent), key, string(op.RangeBytes())}, opts: opts, next: op.Rev(), pace: p.restart(),
		results: make(chan clientv3.WatchResponse),
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	go func() {
		defer close(r.results)
		defer r.cancel()
		r.run()
	}()
	return r.results
}

// enter makes r a reader of the watch of its keys, which it begins if there is none. It returns nil if events that r needs have arrived.
func (w *etcdWatches) enter(r *etcdReader) *etcdWatch {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.open[r.keys]
	if e == nil || !e.admit(r) {
		if e != nil && !e.hasEnded() {
			return nil
		}
		e = w.begin(r)
	}
	return e
}

// begin opens a watch of etcd with its first reader, which it outlives.
func (w *etcdWatches) begin(r *etcdReader) *etcdWatch {
	ctx := context.Background()
	if sent, ok := metadata.FromOutgoingContext(r.ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, sent)
	}
	ctx, cancel := context.WithCancel(ctx)
	e := &etcdWatch{cancel: cancel, readers: map[*etcdReader]struct{}{}, next: r.next, last: &etcdResponse{filled: make(chan struct{})}}
	w.open[r.keys] = e
	e.admit(r) // before events can arrive
	keys, from, opts := r.keys, r.next, r.opts
	go func() {
		defer cancel()
		for response := range w.since(ctx, keys, from, opts) { // it waits for the connection to etcd
			w.grew(e.add(response))
		}
		e.end()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open[keys] == e {
			delete(w.open, keys)
		}
	}()
	return e
}

// since returns a watch of etcd that begins with a revision.
func (w *etcdWatches) since(ctx context.Context, keys etcdKeys, from int64, opts []clientv3.OpOption) clientv3.WatchChan {
	return w.Watcher.Watch(ctx, keys.from, append(opts[:len(opts):len(opts)], clientv3.WithRev(from))...)
}

// leave ends the watch of etcd with its last reader.
func (w *etcdWatches) leave(r *etcdReader, e *etcdWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.readers, r)
	if len(e.readers) > 0 {
		return
	}
	e.ended = true
	e.cancel()
	if w.open[r.keys] == e {
		delete(w.open, r.keys)
	}
}

// grew ends the readers that are furthest behind if there are too many bytes, after every checkEvery bytes.
func (w *etcdWatches) grew(bytes int64) {
	if w.grown.Add(bytes) < checkEvery {
		return
	}
	w.grown.Store(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	var all int64
	for _, e := range w.open {
		all += e.shorten(w.keys, w.ended)
	}
	for all > w.all {
		var most *etcdWatch
		var held int64
		for _, e := range w.open {
			if n := e.shorten(w.keys, w.ended); n > held {
				most, held = e, n
			}
		}
		if most == nil {
			return
		}
		all -= held - most.shorten(held-1, w.ended)
	}
}

// admit makes r a reader, unless events that it needs have arrived or the watch has ended.
func (e *etcdWatch) admit(r *etcdReader) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended || r.next < e.next {
		return false
	}
	r.at.Store(e.last)
	e.readers[r] = struct{}{}
	return true
}

func (e *etcdWatch) hasEnded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended
}

// add appends a response, and returns its bytes.
func (e *etcdWatch) add(response clientv3.WatchResponse) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	size := sizeOfEvents(response.Events)
	last := e.last
	last.response, last.next = response, &etcdResponse{before: last.before + size, filled: make(chan struct{})}
	e.last, e.next = last.next, max(e.next, revisionAfter(response))
	close(last.filled)
	return size
}

func (e *etcdWatch) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	close(e.last.filled)
}

// shorten ends the readers that are more than limit bytes behind, and returns how many bytes the others have not read.
func (e *etcdWatch) shorten(limit int64, ended *metrics.CounterVec) (held int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range e.readers {
		switch behind := e.last.before - r.at.Load().before; {
		case behind > limit:
			r.cancel()
			delete(e.readers, r)
			ended.WithLabelValues("undecoded").Inc()
		default:
			held = max(held, behind)
		}
	}
	return held
}

// sizeOfEvents returns the bytes of the values in events.
func sizeOfEvents(events []*clientv3.Event) (size int64) {
	for _, e := range events {
		size += eventBytes + int64(len(e.Kv.Value))
		if e.PrevKv != nil {
			size += int64(len(e.PrevKv.Value))
		}
	}
	return size
}

// revisionAfter returns the revision from which a watch continues after a response: etcd sends all events of a revision at once.
func revisionAfter(response clientv3.WatchResponse) int64 {
	if n := len(response.Events); n > 0 {
		return response.Events[n-1].Kv.ModRevision + 1
	}
	if response.IsProgressNotify() {
		return response.Header.GetRevision() + 1
	}
	return 0
}
