package fairqueue

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// While requests wait for seats, seats are taken at this interval from requests whose clients do not read or send.
	reclaim = 5 * time.Millisecond
	// overdue is the time after which a cluster without a seat gets one, see seatOverdue.
	overdue = 100 * time.Millisecond
	// storing is the number of blocks that an account may have waiting for etcd without a seat while others are active. A request has at
	// least one block: etcd stores one request after the other, whatever their size.
	storing, block = 32, 64 << 10
	// leisure is the delay of a refusal while others are active. It makes clients cheap that retry immediately.
	leisure = time.Second
	// refusing is the maximum number of delayed refusals of an account, refusingAll of all accounts.
	refusing, refusingAll = 2048, 4096
	// retrySoon and retryLater are the delays, in seconds, after which a refused client may retry.
	retrySoon, retryLater = 1, 5
)

// Config of a Queue. Zero is no limit, unless a field says otherwise.
type Config struct {
	// Seats is the maximum number of requests that run at a time while several clusters are active.
	Seats int
	// Total is the maximum number of open requests, by kind.
	Total [kinds]int
	// Requests and Watches are the maximum numbers of open requests and watches of a holder.
	Requests, Watches int
	// Bytes is the maximum memory of the bodies and responses of requests.
	Bytes int64
	// Patience is the maximum time that a request waits for its first seat, and for memory.
	Patience time.Duration
	// Place returns the position of a holder. It is called for holders that have not had a request for some time, without the lock of the
	// queue: it may read the storage.
	Place func(Holder) Place
}

// Queue shares the capacity of a process.
type Queue struct {
	config  Config
	metrics *queueMetrics
	// tick counts the searches for seats that are not in use.
	tick atomic.Uint64

	mu       sync.Mutex
	root     *node
	leaves   map[Holder]*node
	inner    map[innerKey]*node
	running  tickets // requests with seats
	hungry   tickets // requests that wait for memory
	queued   int     // requests that wait for seats
	oversize *Ticket
	counted  uint64    // calls of excess
	late     []*Ticket // used by seatOverdue
	ticking  bool
	// list of lingering leaves
	first, last *node
	resting     int
}

// New returns an empty queue.
func New(config Config) *Queue {
	q := &Queue{config: config, root: &node{index: -1}, leaves: map[Holder]*node{}, inner: map[innerKey]*node{}}
	q.metrics = newQueueMetrics(q)
	return q
}

// Ticket is the part of an open request in the queue. Its methods may be called on nil, for requests that are not in the queue. They do
// nothing after the request has left.
type Ticket struct {
	q    *Queue
	ctx  context.Context
	kind Kind
	// lent is the tick after the one in which the request began to wait for its client. It is zero while the request does not wait, and taken
	// when the request has lost its seat.
	lent atomic.Uint64

	// The lock of the queue guards all other fields.
	leaf           *node
	busy           bool          // it uses or waits for a seat
	seated, began  bool          // it has a seat, and has had one
	lists          bool          // it is a watch that keeps its seat until it has listed the existing objects
	streams        bool          // it is a watch that has started, and needs no seat any more
	waits          int           // calls of Wait without one of Resume
	ready          chan struct{} // closed when the request gets what it waits for; nil while it does not wait
	since          time.Time     // when it got its seat, or began to wait for one
	stores         int           // its blocks that wait for etcd without a seat
	bytes, wants   int64
	previous, next *Ticket
	gone           bool
}

// taken is the value of Ticket.lent of a request that has lost its seat.
const taken = math.MaxUint64

// Enter accepts a request of a holder, and waits until it has a seat. The error is for the client.
func (q *Queue) Enter(ctx context.Context, h Holder, kind Kind, t *Ticket) error {
	now := time.Now()
	if err := q.letIn(ctx, h, kind, t, now); err != nil {
		return err
	}
	return t.sit(now)
}

// Admit accepts a request of a holder without a seat, to read its body and to take memory for it. The error is for the client.
func (q *Queue) Admit(ctx context.Context, h Holder, kind Kind, t *Ticket) error {
	if err := q.letIn(ctx, h, kind, t, time.Now()); err != nil {
		return err
	}
	q.mu.Unlock()
	return nil
}

// Sit waits until a request that Admit has accepted has a seat. The error is for the client; then the request has left.
func (t *Ticket) Sit() error {
	t.q.mu.Lock()
	return t.sit(time.Now())
}

// letIn counts a request as open. If it succeeds, it returns with the queue locked.
func (q *Queue) letIn(ctx context.Context, h Holder, kind Kind, t *Ticket, now time.Time) error {
	leaf := q.lockLeaf(h, now)
	if err := q.admit(leaf, kind); err != nil {
		if leaf.open() == 0 && leaf.since.IsZero() {
			q.rest(leaf, now)
		}
		q.refuse(ctx, leaf.chain[0], now)
		return err
	}
	if leaf.open() == 0 {
		q.unrest(leaf)
	}
	for n := leaf; n != nil; n = n.parent {
		n.count[kind]++
	}
	t.q, t.ctx, t.kind, t.leaf = q, ctx, kind, leaf
	return nil
}

// sit waits for the first seat. The caller must have locked the queue; sit unlocks it.
func (t *Ticket) sit(now time.Time) error {
	q := t.q
	t.compete(true, now)
	if q.sit(t, now) {
		q.mu.Unlock()
		return nil
	}
	ready := t.ready
	q.mu.Unlock()
	timer := time.NewTimer(q.config.Patience)
	defer timer.Stop()
	var err error
	select {
	case <-ready:
		return nil
	case <-t.ctx.Done():
		err = apierrors.NewTimeoutError("the request ended while it waited in the queue", retrySoon)
	case <-timer.C:
		err = apierrors.NewTooManyRequests(fmt.Sprintf("the server is busy: the request has waited for %s behind other requests of the "+
			"same tenant; send fewer requests at a time", q.config.Patience), retryLater)
	}
	if q.giveUp(t) {
		q.metrics.refused("timeout", t.kind)
		t.Leave()
		return err
	}
	return nil
}

// refuse waits until the server may respond to an account with a refusal. The caller must have locked the queue; refuse unlocks it.
func (q *Queue) refuse(ctx context.Context, account *node, now time.Time) {
	if account.refused >= refusing || q.root.refused >= refusingAll || !account.competes(now) {
		q.mu.Unlock()
		return
	}
	account.refused++
	q.root.refused++
	q.mu.Unlock()
	timer := time.NewTimer(leisure)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	q.mu.Lock()
	account.refused--
	q.root.refused--
	q.mu.Unlock()
}

// sit gives a request a seat, and reports whether it has one. If not, ready is closed when it gets one.
func (q *Queue) sit(t *Ticket, now time.Time) bool {
	if q.queued == 0 && q.free(t.leaf, now) {
		q.seat(t, now)
		return true
	}
	t.ready, t.since = make(chan struct{}), now
	t.leaf.fifo.of(t).add(t)
	t.leaf.wait()
	q.queued++
	q.dispatch(now)
	if t.seated {
		return true
	}
	q.arm()
	return false
}

func (q *Queue) seat(t *Ticket, now time.Time) {
	t.seated, t.began, t.since = true, true, now
	t.leaf.begin()
	q.running.add(t)
}

// stand removes the seat of a request.
func (q *Queue) stand(t *Ticket, now time.Time) {
	if !t.seated {
		return
	}
	t.seated = false
	q.running.remove(t)
	t.leaf.end(now.Sub(t.since))
	q.dispatch(now)
}

// free reports whether a seat for a leaf is available.
func (q *Queue) free(leaf *node, now time.Time) bool {
	seats := math.MaxInt
	for n, i := q.root, 0; ; i++ {
		var full bool
		if full, seats = q.full(n, seats, now); full {
			return false
		}
		if n == leaf {
			return true
		}
		n = leaf.chain[i]
	}
}

// limits reports whether the children of n compete for seats.
func (q *Queue) limits(n *node, now time.Time) bool {
	return q.config.Seats > 0 && n.contended(now)
}

// full reports whether n has all seats that it may have, and returns how many seats each of its children may have.
func (q *Queue) full(n *node, seats int, now time.Time) (full bool, each int) {
	if !q.limits(n, now) {
		return n.seats >= seats, seats
	}
	seats = min(seats, q.config.Seats)
	each = (seats + 1) / 2
	return n.seats >= seats && (n != q.root || n.seats-q.excess(each) >= seats), each
}

// excess returns how many seats accounts have beyond each, from a time when no other account wanted them. These seats take nothing from
// others.
func (q *Queue) excess(each int) int {
	q.counted++
	excess := 0
	for t := q.running.first; t != nil; t = t.next {
		if account := t.leaf.chain[0]; account.counted != q.counted {
			account.counted = q.counted
			excess += max(0, account.seats-each)
		}
	}
	return excess
}

// dispatch gives seats to waiting requests while seats are available.
func (q *Queue) dispatch(now time.Time) {
	for q.queued > 0 {
		leaf := q.pick(q.root, math.MaxInt, now)
		if leaf == nil {
			return
		}
		q.call(leaf.fifo.head(), now)
	}
}

// call gives a seat to a request that waits for one.
func (q *Queue) call(t *Ticket, now time.Time) {
	q.unqueue(t)
	q.seat(t, now)
	close(t.ready)
	t.ready = nil
}

// seatOverdue gives additional seats to clusters that have waited for long without any seat: as many as there are requests that have had
// their seats for that long. Therefore clusters do not wait forever for requests that do not end.
func (q *Queue) seatOverdue(now time.Time) {
	seats := q.config.Seats - q.root.seats
	for t := q.running.first; t != nil; t = t.next {
		if now.Sub(t.since) > overdue {
			seats++
		}
	}
	if seats <= 0 {
		return
	}
	for _, account := range q.root.waiting {
		account.overdue(now, &q.late)
	}
	for i, t := range q.late {
		if i < seats {
			q.call(t, now)
		}
		q.late[i] = nil
	}
	q.late = q.late[:0]
}

// overdue adds to late the first waiting request of each cluster below n that has no seat and has waited for long.
func (n *node) overdue(now time.Time, late *[]*Ticket) {
	for _, child := range n.waiting {
		child.overdue(now, late)
	}
	if t := n.fifo.head(); t != nil && n.seats == 0 && now.Sub(t.since) > overdue {
		*late = append(*late, t)
	}
}

func (q *Queue) unqueue(t *Ticket) {
	t.leaf.fifo.of(t).remove(t)
	t.leaf.unwait()
	q.queued--
}

// pick returns the leaf below n whose request comes next, nil if no request may have a seat.
func (q *Queue) pick(n *node, seats int, now time.Time) *node {
	full, seats := q.full(n, seats, now)
	if full {
		return nil
	}
	if n.chain[depth-1] == n {
		return n
	}
	var passed []*node
	var found *node
	for found == nil && len(n.waiting) > 0 {
		child := n.waiting[0]
		if found = q.pick(child, seats, now); found == nil {
			heap.Pop(&n.waiting)
			passed = append(passed, child)
		}
	}
	for _, child := range passed {
		heap.Push(&n.waiting, child)
	}
	return found
}

// Leave releases everything that a request has.
func (t *Ticket) Leave() {
	if t == nil || t.q == nil {
		return
	}
	q, now := t.q, time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.gone {
		return
	}
	t.gone = true
	q.endWait(t)
	if t.waits > 0 {
		t.hold(-1)
	}
	t.leaf.chain[0].stored -= t.stores
	t.compete(false, now)
	for n := t.leaf; n != nil; n = n.parent {
		n.count[t.kind]--
	}
	if t.leaf.open() == 0 {
		q.rest(t.leaf, now)
	}
	q.stand(t, now)
	if q.oversize == t {
		q.oversize = nil
	}
	q.give(t, t.bytes)
}
