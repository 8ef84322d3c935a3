package fairqueue

import (
	"container/heap"
	"time"
)

const (
	// recent is how long a member counts as active after its last request.
	recent = time.Second
	// linger is how long a cluster without requests stays in memory, and lingering how many do at the most.
	linger, lingering = 10 * time.Second, 4096
	// estimate is charged when a request begins to run, and corrected when it ends.
	estimate = time.Millisecond
)

// Holder is on whose account a request is: a logical cluster, or one user of a cluster that all share.
type Holder struct{ Cluster, User string }

// Place is where a holder is in the tree.
type Place struct {
	// Account is who pays for the unit: users that own several units have one account.
	Account string
	// Unit is what lies directly below root.
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

// node is a member of the tree. Everything in it is guarded by the lock of the queue.
type node struct {
	parent *node
	at     innerKey // where an inner node is in Queue.inner
	holder Holder   // of a leaf
	chain  [depth]*node
	// children in the tree, of which active have requests that use or wait for seats.
	children, active int
	// left are the last two children that became inactive.
	left [2]departure

	// busy are the requests that use or wait for seats, count all that are open, held those that wait for a tenant's host.
	busy        int
	count, held [kinds]int
	// seats in use, and blocks that wait for etcd without one.
	seats, stored int
	refused       int    // refusals of an account that take their time, or of all
	counted       uint64 // the last call of Queue.excess that counted it
	bytes         int64
	// computing has a place for each request of an account that may compute for long at a time.
	computing chan struct{}

	// used is the virtual time of this node: what it has had of seats. now is the one that its children have come to.
	used, now time.Duration
	waiting   nodes // the children with requests that wait
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

// contended returns whether more than one child of n is active, or was a moment ago.
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

// competes returns whether a sibling of n is active, or was a moment ago.
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

// enterBusy and leaveBusy count a request that uses or waits for seats.
func (n *node) enterBusy() {
	for ; n != nil; n = n.parent {
		if n.busy++; n.busy == 1 && n.parent != nil {
			n.parent.active++
			n.used = max(n.used, n.parent.now) // nothing is saved up
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

// wait and unwait keep the members of a chain, from its leaf on, among those with requests that wait.
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

// nodes are a heap by used.
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

// leaf returns the node of a holder, and makes it if need be.
func (q *Queue) leaf(h Holder, now time.Time) *node {
	if n := q.leaves[h]; n != nil {
		return n
	}
	q.forget(now)
	place := q.config.Place(h)
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

// rest puts a leaf without open requests among those that linger, and unrest takes it from there.
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

// forget drops leaves that have lingered long enough: at most two, because it is called for each new one.
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

// fifo holds the requests of a leaf that wait for seats: those that go on before those that begin.
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

// tickets are a list.
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
