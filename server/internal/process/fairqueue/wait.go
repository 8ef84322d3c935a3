package fairqueue

import (
	"time"
)

// giveUp removes a request from the queue, and reports whether it was still waiting.
func (q *Queue) giveUp(t *Ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.seated || t.ready == nil {
		return false
	}
	q.unqueue(t)
	t.ready = nil
	return true
}

// endWait ends the wait of another goroutine of a request that has ended: a seat or memory would never be released.
func (q *Queue) endWait(t *Ticket) {
	switch {
	case t.ready == nil:
		return
	case t.wants > 0:
		q.hungry.remove(t)
		t.wants = 0
	default:
		q.unqueue(t)
	}
	close(t.ready)
	t.ready = nil
}

// compete records whether a request uses or waits for a seat.
func (t *Ticket) compete(busy bool, now time.Time) {
	if t.busy == busy {
		return
	}
	if t.busy = busy; busy {
		t.leaf.enterBusy()
	} else {
		t.leaf.leaveBusy(now)
	}
}

// hold changes the number of requests that wait for hosts of tenants.
func (t *Ticket) hold(by int) {
	for n := t.leaf; n != nil; n = n.parent {
		n.held[t.kind] += by
	}
}

// Wait gives the seat of a request back while it waits for a host that a tenant has configured. Each call needs a call of Resume. Several
// goroutines of a request may wait at a time.
func (t *Ticket) Wait() {
	if t == nil {
		return
	}
	now := time.Now()
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	if t.waits++; t.waits > 1 || t.gone {
		return
	}
	t.hold(1)
	t.compete(false, now)
	t.q.stand(t, now)
}

// Resume waits for a seat after Wait. If the request ends or its patience is over, it returns without a seat.
func (t *Ticket) Resume() {
	if t == nil {
		return
	}
	now := time.Now()
	t.q.mu.Lock()
	if t.waits--; t.waits > 0 || t.gone {
		t.q.mu.Unlock()
		return
	}
	t.hold(-1)
	t.again(now)
}

// again waits for another seat. The caller must have locked the queue; again unlocks it.
func (t *Ticket) again(now time.Time) {
	q := t.q
	if t.gone || !t.began || t.seated || t.ready != nil || t.streams {
		q.mu.Unlock()
		return
	}
	t.compete(true, now)
	if q.sit(t, now) {
		q.mu.Unlock()
		return
	}
	ready := t.ready
	q.mu.Unlock()
	timer := time.NewTimer(q.config.Patience)
	defer timer.Stop()
	select {
	case <-ready:
		return
	case <-t.ctx.Done():
	case <-timer.C:
	}
	q.giveUp(t)
}

// Store gives the seat of a request back while etcd stores the bytes that it writes, and returns a function that takes a seat again. It
// keeps the seat if no other account is active, or if the account has too many blocks waiting for etcd.
func (t *Ticket) Store(bytes int) (stored func()) {
	if t == nil {
		return func() {}
	}
	now := time.Now()
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	account := t.leaf.chain[0]
	blocks := 1 + bytes/block
	if !t.seated || !q.crowded(t.leaf, now) || (account.stored > 0 && account.stored+blocks > storing) {
		return func() {}
	}
	t.stores += blocks
	account.stored += blocks
	q.stand(t, now)
	return func() {
		q.mu.Lock()
		if t.gone {
			q.mu.Unlock()
			return
		}
		account.stored -= blocks
		t.stores -= blocks
		t.again(time.Now())
	}
}

// Yield lets waiting requests have their turn. Long computations call it periodically.
func (t *Ticket) Yield() {
	if t == nil {
		return
	}
	q, now := t.q, time.Now()
	q.mu.Lock()
	if !t.seated || q.queued == 0 {
		q.mu.Unlock()
		return
	}
	q.stand(t, now)
	t.again(now)
}

// Compute waits until fewer requests of the account compute than there are processors, and returns a function that ends the computation.
// Without this limit, all requests that an account sends while no other is active would compete for the processors with the first request
// of another account.
func (t *Ticket) Compute() (done func()) {
	if t == nil || t.q.config.Seats == 0 {
		return func() {}
	}
	slots := t.leaf.chain[0].computing // immutable
	select {
	case slots <- struct{}{}:
	default:
		sit := t.Stand()
		select {
		case slots <- struct{}{}:
		case <-t.ctx.Done():
			slots = nil
		}
		sit()
	}
	return func() {
		if slots != nil {
			<-slots
		}
	}
}

// Stand gives the seat of a request back while it waits for other requests or for other servers of the installation, and returns a function
// that takes a seat again. Other than Store, it never keeps the seat, because such waits can take seconds. Calls must not be nested: the
// first function that returns takes the seat.
func (t *Ticket) Stand() (sit func()) {
	if t == nil {
		return func() {}
	}
	q, now := t.q, time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.seated {
		t.compete(false, now)
		q.stand(t, now)
	}
	return func() {
		q.mu.Lock()
		t.again(time.Now())
	}
}

// Crowded reports whether a request competes with requests of others for seats. Then it should use only one processor.
func (t *Ticket) Crowded() bool {
	if t == nil {
		return false
	}
	now := time.Now()
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	return t.q.crowded(t.leaf, now)
}

// crowded reports whether a leaf competes with others for seats.
func (q *Queue) crowded(leaf *node, now time.Time) bool {
	for n := leaf.parent; n != nil; n = n.parent {
		if q.limits(n, now) {
			return true
		}
	}
	return false
}

// Started gives back the seat of a watch that has started, unless the watch is still listing.
func (t *Ticket) Started() { t.started(false) }

// Lists lets a watch keep its seat until Listed is called: a watch that begins with the existing objects costs as much as a list.
func (t *Ticket) Lists() {
	if t == nil {
		return
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	t.lists = true
}

// Listed gives back the seat of a watch that has listed the existing objects.
func (t *Ticket) Listed() { t.started(true) }

func (t *Ticket) started(listed bool) {
	if t == nil {
		return
	}
	now := time.Now()
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	if t.lists = t.lists && !listed; t.gone || t.lists {
		return
	}
	if t.streams = true; !t.busy {
		return
	}
	t.compete(false, now)
	t.q.stand(t, now)
}

// Lend must be called before a request waits for its client to read or send, and Return afterwards. In between, it may lose its seat.
func (t *Ticket) Lend() { t.lent.Store(t.q.tick.Load() + 1) }

// Return ends what Lend began.
func (t *Ticket) Return() {
	if t.lent.Swap(0) == taken {
		t.q.mu.Lock()
		t.again(time.Now())
	}
}

// arm schedules reclaim while requests wait for seats.
func (q *Queue) arm() {
	if !q.ticking {
		q.ticking = true
		time.AfterFunc(reclaim, q.reclaim)
	}
}

// reclaim takes the seats of requests that wait for their clients.
func (q *Queue) reclaim() {
	tick := q.tick.Add(1)
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for t := q.running.first; t != nil && q.queued > 0; {
		next := t.next
		if at := t.lent.Load(); at > 0 && at < tick && t.lent.CompareAndSwap(at, taken) {
			t.compete(false, now)
			q.running.remove(t)
			t.seated = false
			t.leaf.end(now.Sub(t.since))
		}
		t = next
	}
	q.dispatch(now)
	q.seatOverdue(now)
	if q.ticking = false; q.queued > 0 {
		q.arm()
	}
}
