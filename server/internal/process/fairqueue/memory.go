package fairqueue

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// small is a number of bytes that a request may take without asking.
	small = 16 << 10
	// large is the part of all memory that a request may take beside others, and light the part that an account may have beside all
	// others, and a cluster beside all others of its account.
	large, light = 3, 64
)

// Take takes memory for a request, and waits without a seat until there is some. The error is for the client. What a request has taken it
// gives back when it leaves. Watches take none: what they send is not kept.
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
		err = apierrors.NewTooManyRequests(fmt.Sprintf("the request needs about %d MiB of memory, and other requests of the same tenant use "+
			"what there is: "+
			"read their responses, send fewer large objects at a time, and list in pages (limit and continue)", bytes>>20), retryLater)
	}
	q.mu.Lock()
	if t.wants > 0 { // nobody has fed it
		q.hungry.remove(t)
		t.ready, t.wants = nil, 0
		q.metrics.refused("memory", t.kind)
		q.mu.Unlock()
		return err
	}
	t.again(time.Now())
	return nil
}

// fits returns whether there is memory for what a request wants.
func (q *Queue) fits(t *Ticket) bool {
	total, account := q.config.Bytes, t.leaf.chain[0]
	if q.oversize == t {
		return true
	}
	if t.bytes+t.wants > total/large || t.bytes > 0 {
		// It may never fit beside others, or others wait for what it has: one at a time gets what it wants.
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
			continue // it is alone at this level
		}
		if n.bytes+t.wants > free {
			return false
		}
		free -= n.bytes + t.wants
	}
	return true
}

// feed gives a request what it wants.
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

// give gives the memory of a request back, and to those that wait for it: first to those that have least.
func (q *Queue) give(t *Ticket) {
	if q.oversize == t {
		q.oversize = nil
	}
	for n := t.leaf; n != nil; n = n.parent {
		n.bytes -= t.bytes
	}
	t.bytes = 0
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

// Taken returns how much memory a request has.
func (t *Ticket) Taken() int64 {
	if t == nil {
		return 0
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	return t.bytes
}
