package fairqueue

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// small is the number of bytes that a request may use without Take.
	small = 16 << 10
	// A request may use 1/large of all memory while other requests use memory. An account may always use 1/light of all memory, and a cluster
	// 1/light within its account.
	large, light = 3, 64
)

// Take reserves memory for a request, and waits without a seat until the memory is free. The error is for the client. A request releases
// its memory when it leaves. Watches reserve no memory, because the server does not keep what they send.
func (t *Ticket) Take(bytes int64) error {
	if t == nil || bytes <= small || t.q.config.Bytes == 0 || t.kind == Watch {
		return nil
	}
	q, now := t.q, time.Now()
	q.mu.Lock()
	if t.gone || t.wants > 0 {
		q.mu.Unlock()
		return nil
	}
	t.wants = bytes
	if q.fits(t) {
		q.feed(t)
		q.mu.Unlock()
		return nil
	}
	t.compete(false, now)
	q.stand(t, now)
	ready := make(chan struct{})
	t.ready = ready
	q.hungry.add(t)
	q.mu.Unlock()
	timer := time.NewTimer(q.config.Patience)
	defer timer.Stop()
	var err error
	select {
	case <-ready:
	case <-t.ctx.Done():
		err = apierrors.NewTimeoutError("the request ended while it waited for memory", retrySoon)
	case <-timer.C:
		err = apierrors.NewTooManyRequests(fmt.Sprintf("the request needs about %d MiB of memory, and other requests of the same "+
			"tenant use all that is available: read their responses, send fewer large objects at a time, and list in pages (limit and "+
			"continue)", bytes>>20), retryLater)
	}
	q.mu.Lock()
	if t.wants > 0 { // it got no memory
		q.hungry.remove(t)
		t.ready, t.wants = nil, 0
		q.metrics.refused("memory", t.kind)
		q.mu.Unlock()
		return err
	}
	t.again(time.Now())
	return nil
}

// fits reports whether the memory that a request wants is available.
func (q *Queue) fits(t *Ticket) bool {
	total, account := q.config.Bytes, t.leaf.chain[0]
	if q.oversize == t {
		return true
	}
	if t.bytes+t.wants > total/large || t.bytes > 0 {
		// It may never fit together with others, or others wait for its memory: one such request at a time gets what it wants.
		if q.oversize == nil && (account.bytes == 0 || t.bytes > 0) {
			return true
		}
	}
	return q.fitsBeside(t, total, account)
}

func (q *Queue) fitsBeside(t *Ticket, total int64, account *node) bool {
	free := total - q.root.bytes - t.wants
	if account.bytes+t.wants <= total/light {
		return free >= 0
	}
	if free -= total / spare; t.leaf.bytes+t.wants <= total/light && account.bytes+t.wants <= total/2 {
		return free >= 0
	}
	for _, n := range t.leaf.chain {
		if n != account && n.bytes == n.parent.bytes {
			continue // it has no sibling at this level
		}
		if n.bytes+t.wants > free {
			return false
		}
		free -= n.bytes + t.wants
	}
	return true
}

// feed gives a request the memory that it wants.
func (q *Queue) feed(t *Ticket) {
	if q.oversize != t && (t.bytes+t.wants > q.config.Bytes/large || !q.fitsBeside(t, q.config.Bytes, t.leaf.chain[0])) {
		q.oversize = t
	}
	if q.oversize != t {
		t.bytes += t.wants
		for n := t.leaf; n != nil; n = n.parent {
			n.bytes += t.wants
		}
	}
	t.wants = 0
}

// Release returns memory that Take has reserved and the request does not need.
func (t *Ticket) Release(bytes int64) {
	if t == nil || bytes <= small {
		return
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	if t.q.oversize != t { // whose memory is not counted
		t.q.give(t, min(bytes, t.bytes))
	}
}

// give releases memory of a request and gives it to waiting requests, first to those with the least memory.
func (q *Queue) give(t *Ticket, bytes int64) {
	for n := t.leaf; n != nil; n = n.parent {
		n.bytes -= bytes
	}
	t.bytes -= bytes
	for q.hungry.first != nil {
		var best *Ticket
		for h := q.hungry.first; h != nil; h = h.next {
			if (best == nil || h.leaf.chain[0].bytes < best.leaf.chain[0].bytes ||
				(h.leaf.chain[0] == best.leaf.chain[0] && h.leaf.bytes < best.leaf.bytes)) && q.fits(h) {
				best = h
			}
		}
		if best == nil {
			return
		}
		q.hungry.remove(best)
		q.feed(best)
		close(best.ready)
		best.ready = nil
	}
}

// Taken returns the memory of a request, in bytes.
func (t *Ticket) Taken() int64 {
	if t == nil {
		return 0
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	return t.bytes
}
