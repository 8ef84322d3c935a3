package storage

import (
	"context"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcdReader is one of the watches that share a watch of etcd.
type etcdReader struct {
	watches *etcdWatches
	keys    etcdKeys
	opts    []clientv3.OpOption
	next    int64 // the revision from which it continues
	pace    *pace
	results chan clientv3.WatchResponse
	ctx     context.Context
	cancel  context.CancelFunc
	at      atomic.Pointer[etcdResponse] // what it reads next in the shared watch
}

// run delivers the responses of a watch of its own until it can enter the shared one, and then those.
func (r *etcdReader) run() {
	if e := r.watches.enter(r); e != nil {
		r.follow(e)
		return
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	for response := range r.watches.since(ctx, r.keys, r.next, r.opts) {
		if !r.deliver(response) || response.Err() != nil {
			return
		}
		if e := r.watches.enter(r); e != nil {
			cancel()
			r.follow(e)
			return
		}
	}
}

// follow delivers the responses of a shared watch.
func (r *etcdReader) follow(e *etcdWatch) {
	defer r.watches.leave(r, e)
	for at := r.at.Load(); ; at = r.at.Load() {
		select {
		case <-at.filled:
		case <-r.ctx.Done():
			return
		}
		if at.next == nil || !r.deliver(at.response) {
			return
		}
		r.at.Store(at.next)
	}
}

// deliver delivers what is new in a response, and returns false if the reader has ended.
func (r *etcdReader) deliver(response clientv3.WatchResponse) bool {
	after, progress := revisionAfter(response), len(response.Events) == 0
	if after > 0 && (after < r.next || after == r.next && !progress) {
		return true
	}
	for len(response.Events) > 0 && response.Events[0].Kv.ModRevision < r.next {
		response.Events = response.Events[1:]
	}
	if !r.pace.wait(r.ctx, response.Events) {
		return false
	}
	select {
	case r.results <- response:
		r.next = max(r.next, after)
		return true
	case <-r.ctx.Done():
		return false
	}
}

type paceKey struct{}

// sharingEvents returns a context whose watches share watches of etcd, one after the other.
func sharingEvents(ctx context.Context) context.Context {
	return context.WithValue(ctx, paceKey{}, &pacer{})
}

// pacer has the pace of the watch of a context.
type pacer struct{ current atomic.Pointer[pace] }

func (p *pacer) restart() *pace {
	next := &pace{values: map[*byte]int64{}, decoded: make(chan struct{}, 1)}
	p.current.Store(next)
	return next
}

// decoded records that a value is being decoded for the watch of a context.
func decoded(ctx context.Context, value []byte) {
	if p, ok := ctx.Value(paceKey{}).(*pacer); ok {
		if current := p.current.Load(); current != nil {
			current.remove(value)
		}
	}
}

// mostDelivered limits the bytes that are delivered to a watch and that it has not begun to decode. The watch itself only counts events.
const mostDelivered = 4 << 20

// pace delays events until the watch has begun to decode the former ones.
type pace struct {
	mu      sync.Mutex
	values  map[*byte]int64 // sizes of delivered values, by their first byte
	bytes   int64
	decoded chan struct{}
}

// wait waits until events may be delivered, and records them. It returns false if ctx ends.
func (p *pace) wait(ctx context.Context, events []*clientv3.Event) bool {
	size := sizeOfEvents(events)
	for !p.add(events, size) {
		select {
		case <-p.decoded:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (p *pace) add(events []*clientv3.Event, size int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes > 0 && p.bytes+size > mostDelivered {
		return false
	}
	for _, e := range events {
		if value := valueOf(e); len(value) > 0 {
			p.values[&value[0]] = sizeOfEvents([]*clientv3.Event{e})
			p.bytes += p.values[&value[0]]
		}
	}
	return true
}

// valueOf returns the value that a watch decodes in any case: the new one, or that of the deleted object.
func valueOf(e *clientv3.Event) []byte {
	if e.Type != clientv3.EventTypeDelete {
		return e.Kv.Value
	}
	if e.PrevKv != nil {
		return e.PrevKv.Value
	}
	return nil
}

func (p *pace) remove(value []byte) {
	if len(value) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	size, delivered := p.values[&value[0]]
	if !delivered {
		return
	}
	delete(p.values, &value[0])
	p.bytes -= size
	select {
	case p.decoded <- struct{}{}:
	default:
	}
}
