package fairqueue

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestARequestThatWaitsForAHostHasNoSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2, Requests: 8})
		a, b := both(t, q)
		defer b.Leave()
		next := make(chan *Ticket)
		go func() { next <- entered(t, q, "a/u/c", Read) }()
		synctest.Wait()
		a.Wait()
		a.Wait() // by another goroutine of the request
		second := <-next
		resumed := make(chan struct{})
		go func() {
			a.Resume()
			a.Resume()
			close(resumed)
		}()
		synctest.Wait()
		select {
		case <-resumed:
			t.Error("it continues without a seat")
		default:
		}
		second.Leave()
		<-resumed
		if !a.seated || q.root.held[Read] != 0 {
			t.Error("it has no seat")
		}
		a.Leave()
		// Half of the requests of a cluster may wait.
		var waiting []*Ticket
		for range 4 {
			w := entered(t, q, "a/u/c", Write)
			w.Wait()
			waiting = append(waiting, w)
		}
		if err := q.Enter(t.Context(), cluster("a/u/c"), Write, &Ticket{}); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "hosts") {
			t.Errorf("another request that may wait: %v", err)
		}
		entered(t, q, "a/u/c", Read).Leave()
		entered(t, q, "a/u/d", Write).Leave()
		for _, w := range waiting {
			w.Leave()
		}
		if q.root.held != [kinds]int{} {
			t.Errorf("%v are held", q.root.held)
		}
	})
}

func TestARequestThatEndsWhileItWaitsAgainTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2, Requests: 8, Bytes: 8 << 20})
		a, b := both(t, q)
		a.Wait()
		second := entered(t, q, "a/u/c", Read)
		go a.Resume() // a goroutine of the request, which outlives it
		synctest.Wait()
		a.Leave()
		second.Leave()
		b.Leave()
		synctest.Wait()
		if q.root.seats != 0 || q.queued != 0 {
			t.Errorf("%d seats are taken, and %d requests wait", q.root.seats, q.queued)
		}

		a, b = both(t, q)
		if err := b.Take(8 << 20); err != nil {
			t.Fatal(err)
		}
		go func() { _ = a.Take(8 << 20) }()
		synctest.Wait()
		if q.hungry.first == nil {
			t.Fatal("the request does not wait for memory")
		}
		a.Leave()
		b.Leave()
		synctest.Wait()
		if q.root.bytes != 0 || q.root.seats != 0 || q.hungry.first != nil {
			t.Errorf("%d bytes and %d seats are taken", q.root.bytes, q.root.seats)
		}
	})
}

func TestARequestThatWaitsForEtcdHasNoSeatWhileOthersAreActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2})
		a := entered(t, q, "a/u/c", Write)
		a.Store(0)()
		b := entered(t, q, "b/u/c", Write)
		var stored []func()
		var tickets []*Ticket
		for range storing {
			stored = append(stored, a.Store(0))
			tickets = append(tickets, a)
			a = entered(t, q, "a/u/c", Write)
		}
		a.Store(0)()
		if !a.seated {
			t.Error("too many blocks wait for etcd")
		}
		a.Leave()
		for i, f := range stored {
			f()
			if !tickets[i].seated {
				t.Error("it has no seat")
			}
			tickets[i].Leave()
		}
		b.Leave()
		if q.root.seats != 0 || q.leaves[cluster("a/u/c")].chain[0].stored != 0 {
			t.Errorf("the queue is not empty: %+v", q.root)
		}
	})
}

func TestARequestThatStandsNeverHasASeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 1})
		var standing []*Ticket
		var sit []func()
		for range 2 * storing { // while no other account is active
			a := entered(t, q, "a/u/c", Read)
			standing, sit = append(standing, a), append(sit, a.Stand())
		}
		account := q.leaves[cluster("a/u/c")].chain[0]
		if account.seats != 0 || account.busy != 0 || account.stored != 0 || account.held[Read] != 0 {
			t.Fatalf("%d seats are taken: %+v", account.seats, account)
		}
		first, second := entered(t, q, "b/u/c", Read), standing[0]
		second.Stand() // it has no seat to give back
		sat := make(chan struct{})
		go func() {
			sit[0]()
			close(sat)
		}()
		synctest.Wait()
		if hasSeat(second) {
			t.Error("both have the only seat")
		}
		first.Leave()
		if <-sat; !hasSeat(second) {
			t.Error("it has no seat afterwards")
		}
		for _, a := range standing {
			a.Leave()
		}
		if sit[1](); q.root.seats != 0 || q.root.busy != 0 {
			t.Errorf("the queue is not empty: %+v", q.root)
		}
		(*Ticket)(nil).Stand()()
	})
}

func TestStoresOfOneRequestAreCountedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2})
		other := entered(t, q, "b/u/c", Write)
		stored := func() int { return q.leaves[cluster("a/u/c")].chain[0].stored }
		for what, end := range map[string]func(a *Ticket, first, second func()){
			"nested":      func(_ *Ticket, first, second func()) { second(); first() },
			"overlapping": func(_ *Ticket, first, second func()) { first(); second() },
			"ended":       func(a *Ticket, first, second func()) { first(); a.Leave(); second() },
		} {
			a := entered(t, q, "a/u/c", Write)
			first := a.Store(3 * block)
			a.Wait()
			a.Resume() // another goroutine of the request takes a seat, and stores something
			second := a.Store(2 * block)
			if stored() != 7 {
				t.Fatalf("%s: %d blocks are stored", what, stored())
			}
			end(a, first, second)
			if stored() != 0 || a.stores != 0 && !a.gone {
				t.Errorf("%s: %d blocks are left", what, stored())
			}
			if a.Leave(); stored() != 0 {
				t.Errorf("%s: %d blocks are left when the request has ended", what, stored())
			}
		}
		other.Leave()
		if q.root.seats != 0 {
			t.Errorf("%d seats are left", q.root.seats)
		}
	})
}

func TestLargeObjectsOfOneAccountWaitForEtcdOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 4})
		other := entered(t, q, "b/u/c", Write)
		first, second := entered(t, q, "a/u/c", Write), entered(t, q, "a/u/d", Write)
		stored := first.Store(storing * block)
		if first.seated {
			t.Error("the first one keeps its seat while etcd stores it")
		}
		second.Store(storing * block)()
		if !second.seated {
			t.Error("the second one has given its seat back")
		}
		other.Store(storing * block)() // its account has nothing waiting
		stored()
		for _, ticket := range []*Ticket{first, second, other} {
			ticket.Leave()
		}
		if left := q.leaves[cluster("a/u/c")].chain[0].stored; left != 0 || q.root.seats != 0 {
			t.Errorf("%d blocks and %d seats are left", left, q.root.seats)
		}
	})
}

func TestRequestsWhoseClientsDoNotReadLoseTheirSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2})
		a, b := both(t, q)
		a.Lend()
		b.Lend()
		b.Return()
		begin := time.Now()
		c := entered(t, q, "a/u/c", Read)
		if waited := time.Since(begin); waited > 2*reclaim || hasSeat(a) || !hasSeat(b) {
			t.Errorf("it waited %s", waited)
		}
		back := make(chan struct{})
		go func() {
			a.Return()
			close(back)
		}()
		synctest.Wait()
		if hasSeat(a) {
			t.Error("it continues without a seat")
		}
		c.Leave()
		<-back
		a.Leave()
		b.Leave()
		if q.root.seats != 0 || q.root.busy != 0 {
			t.Errorf("the queue is not empty: %+v", q.root)
		}
	})
}

func hasSeat(t *Ticket) bool {
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	return t.seated
}

// What is let in is open, has memory for its body, and is active only once it wants a seat.
func TestARequestWithASlowBodyHasNoSeat(t *testing.T) {
	q := newQueue(Config{Seats: 2, Requests: 1, Bytes: 256 << 20})
	a := &Ticket{}
	if err := q.Admit(t.Context(), cluster("a/u/c"), Write, a); err != nil {
		t.Fatal(err)
	}
	if err := a.Take(1 << 20); err != nil || hasSeat(a) || q.root.seats != 0 || q.root.active != 0 || q.root.bytes != 1<<20 {
		t.Errorf("it has taken memory: %v, %+v", err, q.root)
	}
	if err := q.Admit(t.Context(), cluster("a/u/c"), Write, &Ticket{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("another one: %v", err)
	}
	if err := a.Sit(); err != nil || !hasSeat(a) {
		t.Errorf("it has no seat: %v", err)
	}
	if a.Leave(); q.root.seats != 0 || q.root.busy != 0 || q.root.bytes != 0 || q.root.count != [kinds]int{} {
		t.Errorf("the queue is not empty: %+v", q.root)
	}
}

// Computations that an account began while no other was active must not keep all processors when another account becomes active.
func TestAnAccountComputesOnAtMostAllProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2})
		enter := func(holder string) *Ticket {
			ticket := &Ticket{}
			if err := q.Enter(t.Context(), cluster(holder), Write, ticket); err != nil {
				t.Error(err)
			}
			return ticket
		}
		var computing, most int
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				ticket := enter("busy/u/a")
				defer ticket.Leave()
				defer ticket.Compute()()
				mu.Lock()
				computing++
				most = max(most, computing)
				mu.Unlock()
				for range 100 {
					time.Sleep(time.Millisecond)
					ticket.Yield()
				}
				mu.Lock()
				computing--
				mu.Unlock()
			})
		}
		synctest.Wait()
		if q.root.seats != 2 {
			t.Errorf("while one account is alone, %d requests have a seat", q.root.seats)
		}
		other := enter("other/u/a")
		began := time.Now()
		other.Compute()()
		time.Sleep(20 * time.Millisecond)
		other.Leave()
		if took := time.Since(began); took > 25*time.Millisecond {
			t.Errorf("another account waits: %s", took)
		}
		all.Wait()
		if most != 2 || q.queued != 0 || q.root.seats != 0 || q.root.busy != 0 {
			t.Errorf("%d computed at a time; at the end %d wait, %d have seats, %d are busy", most, q.queued, q.root.seats, q.root.busy)
		}
	})
	ended, end := context.WithCancel(t.Context())
	q := newQueue(Config{Seats: 1})
	first, second := &Ticket{}, &Ticket{}
	_ = q.Enter(t.Context(), cluster("a/u/a"), Write, first)
	_ = q.Enter(ended, cluster("a/u/a"), Write, second)
	defer first.Compute()()
	end()
	second.Compute()()
	second.Leave()
	(*Ticket)(nil).Compute()()
	(*Ticket)(nil).Yield()
}

// A request that computes lets those of the same account have their turn, too.
func TestYieldLetsOthersHaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 1})
		long, short := &Ticket{}, &Ticket{}
		if err := q.Enter(t.Context(), cluster("long/u/a"), Write, long); err != nil {
			t.Fatal(err)
		}
		long.Yield() // no request waits
		entered := make(chan error)
		go func() { entered <- q.Enter(t.Context(), cluster("short/u/a"), Write, short) }()
		synctest.Wait()
		yielded := make(chan bool)
		time.Sleep(10 * time.Millisecond)
		go func() {
			long.Yield()
			yielded <- true
		}()
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-yielded:
			t.Error("both have the only seat")
		default:
		}
		short.Leave()
		<-yielded
		long.Leave()
	})
}
