package fairqueue

import (
	"container/heap"
	"time"
)

const (
	// recent is the time that a member counts as active after its last request.
	recent = time.Second
	// linger is the time that a cluster without requests stays in memory, lingering the maximum number of such clusters.
	linger, lingering = 10 * time.Second, 4096
	// estimate is the seat time that is charged when a request gets a seat. It is corrected when the request ends.
	estimate = time.Millisecond
)

// Holder is the member of the tree that a request counts against: a logical cluster, or one user of a cluster that all users share.
type Holder struct{ Cluster, User string }

// Place is the position of a holder in the tree.
type Place struct {
	// Account owns the unit. Users that own several units have one account.
	Account string
	// Unit is the workspace directly below root.
	Unit string
	// Owner of the cluster.
	Owner string
}

// Kind of a request.
type Kind int

// The kinds of requests.
const (
	Read Kind = iota
	Write
	Watch
	kinds
)

func (k Kind) String() string { return [...]string{"read", "write", "watch"}[k] }

const depth = 4

// node is a member of the tree.
//
// Invariants, whenever the lock of the queue, which guards all fields, is free:
//   - busy, seats, bytes, count and held of an inner node are the sums over its children. active is the number of children with busy > 0.
//     refused counts for accounts and the root, stored for accounts only.
//   - A leaf without open requests is in the list of lingering leaves, and no other leaf is. forget drops only such leaves, and inner
//     nodes with their last child.
//   - A node is in waiting of its parent if and only if a request of a leaf below it waits for a seat. pick removes nodes and puts them
//     back.
//   - waiting is ordered by used: charge restores the order. A request that begins is charged an estimate, and the rest when its seat
//     ends.
//   - now never falls. A child that becomes active gets at least the now of its parent as used: it saves no time while it is inactive.
//   - The seat time of a cluster passes for all active clusters of its owner. Otherwise, all clusters that arrive would have the same used,
//     and nothing would let the first of them come before the last.
type node struct {
	parent *node
	at     innerKey // key of an inner node in Queue.inner
	holder Holder   // of a leaf
	chain  [depth]*node
	// children in the tree, of which active have requests that use or wait for seats.
	children, active int
	// left are the last two children that became inactive.
	left [2]departure

	// busy counts the requests that use or wait for seats, count all open requests, held those that wait for the host of a tenant.
	busy        int
	count, held [kinds]int
	// seats in use, and blocks that wait for etcd without a seat.
	seats, stored int
	refused       int    // delayed refusals of an account, or of all accounts
	counted       uint64 // the last call of Queue.excess that counted this node
	bytes         int64
	// computing is a semaphore for the requests of an account that compute for long.
	computing chan struct{}

	// used is the virtual time of this node: its seat time. now is the virtual time of its children.
	used, now time.Duration
	waiting   nodes // the children with waiting requests
	index     int   // in waiting of the parent, -1 if not there
	fifo      fifo  // of a leaf

	// list of leaves that linger
	previous, next *node
	since          time.Time
}

type departure struct {
	node *node
	at   time.Time
}

type innerKey struct {
	parent *node
	name   string
}

// contended reports whether more than one child of n is active, or was until recently.
func (n *node) contended(now time.Time) bool {
	if n.active != 1 {
		return n.active > 1
	}
	for _, d := range n.left {
		if d.node != nil && d.node.busy == 0 && now.Sub(d.at) < recent {
			return true
		}
	}
	return false
}

// competes reports whether a sibling of n is active, or was until recently.
func (n *node) competes(now time.Time) bool {
	others := n.parent.active
	if n.busy > 0 {
		others--
	}
	for _, d := range n.parent.left {
		if d.node != nil && d.node != n && d.node.busy == 0 && now.Sub(d.at) < recent {
			others++
		}
	}
	return others > 0
}

// enterBusy and leaveBusy count a request that uses or waits for a seat.
func (n *node) enterBusy() {
	for ; n != nil; n = n.parent {
		if n.busy++; n.busy == 1 && n.parent != nil {
			n.parent.active++
			n.used = max(n.used, n.parent.now) // unused time is not saved
		}
	}
}

func (n *node) leaveBusy(now time.Time) {
	for ; n != nil; n = n.parent {
		if n.busy--; n.busy > 0 || n.parent == nil {
			continue
		}
		p := n.parent
		p.active--
		if p.left[0].node != n {
			p.left[1] = p.left[0]
		}
		p.left[0] = departure{n, now}
	}
}

// begin and end charge a seat to the members of a chain.
func (n *node) begin() {
	for ; n.parent != nil; n = n.parent {
		n.seats++
		n.parent.now = max(n.parent.now, n.used)
		n.charge(estimate)
	}
	n.seats++
}

func (n *node) end(used time.Duration) {
	n.parent.now += used / time.Duration(max(1, n.parent.active))
	for ; n.parent != nil; n = n.parent {
		n.seats--
		n.charge(used - estimate)
	}
	n.seats--
}

func (n *node) charge(d time.Duration) {
	n.used += d
	if n.index >= 0 {
		heap.Fix(&n.parent.waiting, n.index)
	}
}

// wait and unwait add the members of a chain, starting at its leaf, to the heaps of members with waiting requests, and remove them.
func (n *node) wait() {
	for ; n.parent != nil && n.index < 0; n = n.parent {
		heap.Push(&n.parent.waiting, n)
	}
}

func (n *node) unwait() {
	for ; n.parent != nil && n.index >= 0 && n.fifo.empty() && len(n.waiting) == 0; n = n.parent {
		heap.Remove(&n.parent.waiting, n.index)
	}
}

// nodes is a heap ordered by used.
type nodes []*node

func (h nodes) Len() int           { return len(h) }
func (h nodes) Less(i, j int) bool { return h[i].used < h[j].used }
func (h nodes) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *nodes) Push(x any) {
	n := x.(*node)
	n.index = len(*h)
	*h = append(*h, n)
}
func (h *nodes) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	n.index = -1
	return n
}

// lockLeaf locks the queue, and returns the node of a holder, which it creates if it does not exist.
func (q *Queue) lockLeaf(h Holder, now time.Time) *node {
	q.mu.Lock()
	if n := q.leaves[h]; n != nil {
		return n
	}
	q.mu.Unlock()
	place := q.config.Place(h)
	q.mu.Lock()
	if n := q.leaves[h]; n != nil {
		return n
	}
	q.forget(now)
	return q.addLeaf(h, place)
}

func (q *Queue) addLeaf(h Holder, place Place) *node {
	n := q.root
	var chain [depth]*node
	for i, name := range [...]string{place.Account, place.Unit, place.Owner} {
		key := innerKey{n, name}
		child := q.inner[key]
		if child == nil {
			child = &node{parent: n, at: key, index: -1, used: n.now}
			if i == 0 {
				child.computing = make(chan struct{}, q.config.Seats)
			}
			q.inner[key] = child
			n.children++
		}
		chain[i], n = child, child
	}
	n.children++
	leaf := &node{parent: n, holder: h, index: -1, used: n.now}
	chain[depth-1], leaf.chain = leaf, chain
	leaf.chain[depth-1] = leaf
	q.leaves[h] = leaf
	return leaf
}

// rest adds a leaf without open requests to the lingering leaves, and unrest removes it.
func (q *Queue) rest(n *node, now time.Time) {
	n.since, n.previous = now, q.last
	if q.last != nil {
		q.last.next = n
	} else {
		q.first = n
	}
	q.last = n
	q.resting++
}

func (q *Queue) unrest(n *node) {
	if n.previous == nil && n.next == nil && q.first != n {
		return
	}
	if n.previous != nil {
		n.previous.next = n.next
	} else {
		q.first = n.next
	}
	if n.next != nil {
		n.next.previous = n.previous
	} else {
		q.last = n.previous
	}
	n.previous, n.next = nil, nil
	q.resting--
}

// forget drops leaves that have lingered long enough. At most two: it is called for each new leaf.
func (q *Queue) forget(now time.Time) {
	for range 2 {
		n := q.first
		if n == nil || (q.resting <= lingering && now.Sub(n.since) < linger) {
			return
		}
		q.unrest(n)
		delete(q.leaves, n.holder)
		for p := n.parent; p.parent != nil; p = p.parent {
			if p.children--; p.children > 0 {
				break
			}
			delete(q.inner, p.at)
		}
	}
}

// fifo contains the requests of a leaf that wait for seats. Requests that resume come before requests that begin.
type fifo struct{ going, fresh tickets }

func (f *fifo) empty() bool { return f.going.first == nil && f.fresh.first == nil }

func (f *fifo) of(t *Ticket) *tickets {
	if t.began {
		return &f.going
	}
	return &f.fresh
}

func (f *fifo) head() *Ticket {
	if f.going.first != nil {
		return f.going.first
	}
	return f.fresh.first
}

// tickets is a linked list.
type tickets struct{ first, last *Ticket }

func (l *tickets) add(t *Ticket) {
	t.previous, t.next = l.last, nil
	if l.last != nil {
		l.last.next = t
	} else {
		l.first = t
	}
	l.last = t
}

func (l *tickets) remove(t *Ticket) {
	if t.previous != nil {
		t.previous.next = t.next
	} else {
		l.first = t.next
	}
	if t.next != nil {
		t.next.previous = t.previous
	} else {
		l.last = t.previous
	}
	t.previous, t.next = nil, nil
}
