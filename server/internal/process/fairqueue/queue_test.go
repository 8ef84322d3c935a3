package fairqueue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// placed puts a holder account/unit/cluster where its name says.
func placed(h Holder) Place {
	parts := strings.Split(h.Cluster, "/")
	return Place{Account: parts[0], Unit: parts[1], Owner: parts[0]}
}

func newQueue(config Config) *Queue {
	config.Place = placed
	if config.Patience == 0 {
		config.Patience = 15 * time.Second
	}
	return New(config)
}

func cluster(name string) Holder { return Holder{Cluster: name} }

// load is what clients do to a queue whose processors are simulated: who has a seat runs for as long as its work takes.
type load struct {
	q    *Queue
	ctx  context.Context
	mu   sync.Mutex
	done map[string]int
	most map[string]time.Duration
	all  sync.WaitGroup
}

// clients send requests of a holder, each of which takes so long, one after the other, with a pause between them.
func (l *load) clients(n int, holder string, work, pause time.Duration) {
	for i := range n {
		l.all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for l.ctx.Err() == nil {
				begin := time.Now()
				t := &Ticket{}
				if err := l.q.Enter(l.ctx, cluster(holder), Read, t); err != nil {
					continue
				}
				time.Sleep(work)
				t.Leave()
				l.mu.Lock()
				l.done[holder]++
				l.most[holder] = max(l.most[holder], time.Since(begin))
				l.mu.Unlock()
				time.Sleep(pause + time.Duration(random.Int64N(int64(time.Microsecond))))
			}
		})
	}
}

// lasts is how many milliseconds a load does.
const lasts = 2000

// run lets clients of a queue with so many seats work for a time.
func run(t *testing.T, seats int, start func(l *load)) *load {
	t.Helper()
	l := &load{done: map[string]int{}, most: map[string]time.Duration{}}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lasts*time.Millisecond)
		defer cancel()
		l.q, l.ctx = newQueue(Config{Seats: seats}), ctx
		start(l)
		l.all.Wait()
		if q := l.q; q.queued != 0 || q.root.seats != 0 || q.root.busy != 0 || q.root.active != 0 || q.running.first != nil {
			t.Errorf("when all have left: %d queued, %d seats, %d busy, %d active", q.queued, q.root.seats, q.root.busy, q.root.active)
		}
	})
	return l
}

func near(t *testing.T, what string, got, want int) {
	t.Helper()
	if got < want*9/10 || got > want*11/10 {
		t.Errorf("%s: got %d, want about %d", what, got, want)
	}
}

func TestAQuietTenantKeepsItsThroughput(t *testing.T) {
	const ms = time.Millisecond
	for _, pair := range [][2]string{{"busy/u/a", "quiet/u/a"}, {"one/u/a", "one/v/a"}, {"one/u/a", "one/u/b"}} {
		busy, quiet := pair[0], pair[1]
		alone := run(t, 4, func(l *load) { l.clients(1, quiet, ms, ms) })
		among := run(t, 4, func(l *load) {
			l.clients(50, busy, ms, 0)
			l.clients(1, quiet, ms, ms)
		})
		near(t, quiet+" beside "+busy, among.done[quiet], alone.done[quiet])
		if among.most[quiet] > 3*ms {
			t.Errorf("%s waits for %s", quiet, among.most[quiet])
		}
		near(t, busy+", which has half of the seats", among.done[busy], 2*lasts)
	}
}

func TestTenantsShareSeatsByTheTimeTheyUseThem(t *testing.T) {
	const ms = time.Millisecond
	l := run(t, 4, func(l *load) {
		l.clients(50, "short/u/a", ms, 0)
		l.clients(10, "long/u/a", 20*ms, 0)
	})
	near(t, "short requests", l.done["short/u/a"], 2*lasts)
	near(t, "long requests", l.done["long/u/a"], 2*lasts/20)
	// An account with many clusters has no more than one with one, and an account of several units no more than one of one.
	l = run(t, 4, func(l *load) {
		for i := range 10 {
			l.clients(5, fmt.Sprintf("many/u%d/c%d", i%5, i), ms, 0)
		}
		l.clients(10, "one/u/a", ms, 0)
	})
	many := 0
	for holder, n := range l.done {
		if strings.HasPrefix(holder, "many/") {
			many += n
			near(t, holder, n, 2*lasts/10)
		}
	}
	near(t, "many clusters", many, 2*lasts)
	near(t, "one cluster", l.done["one/u/a"], 2*lasts)
}

func TestASingleActiveTenantHasNoLimit(t *testing.T) {
	l := run(t, 4, func(l *load) { l.clients(50, "a/u/c", time.Millisecond, 0) })
	near(t, "alone", l.done["a/u/c"], 50*lasts)
}

func TestNoTenantStarves(t *testing.T) {
	const ms = time.Millisecond
	l := run(t, 4, func(l *load) {
		for i := range 100 {
			l.clients(3, fmt.Sprintf("a%d/u/c", i), 5*ms, 0)
		}
		l.clients(1, "slow/u/c", 100*ms, 0)
	})
	for holder, n := range l.done {
		if holder != "slow/u/c" && (n < 10 || n > 20) {
			t.Errorf("%s: %d requests", holder, n)
		}
	}
	if l.done["slow/u/c"] == 0 {
		t.Error("long requests starve")
	}
}

// entered returns a request that has a seat.
func entered(t *testing.T, q *Queue, holder string, kind Kind) *Ticket {
	t.Helper()
	ticket := &Ticket{}
	if err := q.Enter(t.Context(), cluster(holder), kind, ticket); err != nil {
		t.Fatal(err)
	}
	return ticket
}

func TestTheTenantWithTheMostRequestsIsRefused(t *testing.T) {
	q := newQueue(Config{Total: [kinds]int{Read: 300, Write: 300}, Requests: 1000})
	admitted := func(holder string) int {
		for n := 0; ; n++ {
			if err := q.Enter(t.Context(), cluster(holder), Write, &Ticket{}); err != nil {
				if !apierrors.IsTooManyRequests(err) {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	for i, want := range []int{112, 56, 28, 14, 7, 3, 3, 3, 3, 3} {
		if n := admitted(fmt.Sprintf("a%d/u/c", i)); n < want-1 || n > want+1 {
			t.Errorf("the next has %d, want about %d", n, want)
		}
	}
	if n := admitted("a0/u/d") + admitted("a0/u/e") + admitted("a0/v/d"); n > 9 {
		t.Errorf("the first account has %d more requests", n)
	}
	entered(t, q, "last/u/c", Write)
	entered(t, q, "a0/u/c", Read)
}

func TestRefusalsAreDelayedWhileOthersAreActive(t *testing.T) {
	for other, want := range map[string]time.Duration{"": 0, "busy/u/b": 0, "quiet/u/a": leisure} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(Config{Seats: 4, Requests: 1})
			hung, present, refused := &Ticket{}, &Ticket{}, &Ticket{}
			if err := q.Enter(t.Context(), cluster("busy/u/a"), Read, hung); err != nil {
				t.Fatal(err)
			}
			hung.Wait()
			if other != "" {
				if err := q.Enter(t.Context(), cluster(other), Read, present); err != nil {
					t.Fatal(err)
				}
				present.Leave() // a moment ago
			}
			began := time.Now()
			if err := q.Enter(t.Context(), cluster("busy/u/a"), Read, refused); !apierrors.IsTooManyRequests(err) {
				t.Errorf("beside %q: got %v, want 429", other, err)
			}
			if took := time.Since(began); took != want {
				t.Errorf("beside %q a refusal takes %s, want %s", other, took, want)
			}
			hung.Leave()
			if q.root.refused != 0 {
				t.Errorf("%d refusals are delayed", q.root.refused)
			}
		})
	}
}

func TestTheNumberOfDelayedRefusalsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 4, Requests: 1})
		for _, h := range []string{"busy/u/a", "quiet/u/a"} {
			if err := q.Enter(t.Context(), cluster(h), Read, &Ticket{}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range refusing {
			all.Go(func() { _ = q.Enter(ctx, cluster("busy/u/a"), Read, &Ticket{}) })
		}
		synctest.Wait()
		began := time.Now()
		if err := q.Enter(t.Context(), cluster("busy/u/a"), Read, &Ticket{}); !apierrors.IsTooManyRequests(err) || time.Since(began) > 0 {
			t.Errorf("got %v after %s, want 429 at once", err, time.Since(began))
		}
		cancel() // a request that ends does not wait
		all.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("requests that have ended wait for %s", took)
		}
	})
}

func TestClustersOfAUnitShareItsSlots(t *testing.T) {
	q := newQueue(Config{Total: [kinds]int{Write: 3000}, Requests: 400})
	for i := range 10 {
		for range 400 {
			_ = q.Enter(t.Context(), cluster(fmt.Sprintf("a/u/c%d", i)), Write, &Ticket{})
		}
	}
	entered(t, q, "a/u/another", Write)
	entered(t, q, "a/v/another", Write)
	entered(t, q, "b/v/another", Write)
}

func TestAClusterCannotExceedItsOpenRequests(t *testing.T) {
	q := newQueue(Config{Requests: 2, Watches: 1})
	tickets := []*Ticket{entered(t, q, "a/u/c", Read), entered(t, q, "a/u/c", Write), entered(t, q, "a/u/c", Watch)}
	for kind := range kinds {
		if err := q.Enter(t.Context(), cluster("a/u/c"), kind, &Ticket{}); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "may have no more at a time") {
			t.Errorf("%s: %v", kind, err)
		}
		entered(t, q, "a/u/d", kind).Leave()
	}
	for _, ticket := range tickets {
		ticket.Leave()
		ticket.Leave()
		ticket.Wait()
		ticket.Resume()
		ticket.Store(0)()
		ticket.Started()
		if err := ticket.Take(1 << 40); err != nil {
			t.Error(err)
		}
	}
	if q.root.busy != 0 || q.root.seats != 0 || q.leaves[cluster("a/u/c")].open() != 0 {
		t.Errorf("the queue is not empty: %+v", q.root)
	}
	entered(t, q, "a/u/c", Write)
}

func TestOnlyActiveMembersAreInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2})
		for i := range 3 * lingering {
			entered(t, q, fmt.Sprintf("a%d/u/c%d", i%100, i), Read).Leave()
		}
		if len(q.leaves) > lingering+1 || q.resting != len(q.leaves) {
			t.Errorf("%d clusters linger", len(q.leaves))
		}
		time.Sleep(linger)
		for i := range lingering {
			entered(t, q, fmt.Sprintf("b/u/c%d", i), Read).Leave()
			time.Sleep(linger)
		}
		if len(q.leaves) > 2 || len(q.inner) > 6 {
			t.Errorf("%d clusters and %d members are in memory", len(q.leaves), len(q.inner))
		}
	})
}

// Both are active, with one seat each.
func both(t *testing.T, q *Queue) (a, b *Ticket) {
	return entered(t, q, "a/u/c", Read), entered(t, q, "b/u/c", Read)
}

func TestAWaitEndsWithItsRequestOrTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2})
		a, b := both(t, q)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Enter(ctx, cluster("a/u/c"), Read, &Ticket{}); !apierrors.IsTimeout(err) || ctx.Err() == nil {
			t.Errorf("it ended: %v", err)
		}
		begin := time.Now()
		if err := q.Enter(t.Context(), cluster("a/u/c"), Read, &Ticket{}); !apierrors.IsTooManyRequests(err) || time.Since(begin) != q.config.Patience {
			t.Errorf("it waited %s: %v", time.Since(begin), err)
		}
		a.Leave()
		entered(t, q, "a/u/c", Read).Leave()
		b.Leave()
		if q.root.busy != 0 || q.queued != 0 || q.root.count != [kinds]int{} {
			t.Errorf("the queue is not empty: %+v", q.root)
		}
	})
}

// An account that has seats from a time when no other was active, or whose requests do not end, does not keep others from getting seats.
func TestNoClusterWaitsForeverForSeatsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 4})
		for range 50 {
			entered(t, q, "a/u/c", Read)
		}
		begin := time.Now()
		entered(t, q, "b/u/c", Read)
		entered(t, q, "b/u/c", Read)
		if time.Since(begin) != 0 {
			t.Errorf("it waited %s", time.Since(begin))
		}
		entered(t, q, "c/u/c", Read)
		if waited := time.Since(begin); waited > 2*overdue {
			t.Errorf("it waited %s", waited)
		}
		if err := q.Enter(t.Context(), cluster("a/u/c"), Read, &Ticket{}); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the request with all seats: %v", err)
		}
	})
}

func TestAWatchThatListsHasASeatUntilTheListIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2})
		other := entered(t, q, "b/u/c", Read)
		w := entered(t, q, "a/u/c", Watch)
		w.Lists()
		w.Started() // it writes the first object
		if !hasSeat(w) {
			t.Error("it lists without a seat")
		}
		w.Lend()
		next := entered(t, q, "a/u/c", Read) // takes the seat while the client does not read
		go w.Return()
		synctest.Wait()
		if hasSeat(w) {
			t.Error("it continues without waiting for its turn")
		}
		next.Leave()
		synctest.Wait()
		if !hasSeat(w) {
			t.Error("it has lost its seat")
		}
		if w.Listed(); hasSeat(w) {
			t.Error("it has a seat and waits for events")
		}
		w.Leave()
		other.Leave()
	})
}

func TestAllWatchesAreShared(t *testing.T) {
	q := newQueue(Config{Watches: 100, Total: [kinds]int{Watch: 1000}})
	var refused error
	open := map[string]int{}
	for i := range 2000 {
		if err := q.Enter(t.Context(), cluster(fmt.Sprintf("many/u%d/c%d", i%30, i%30)), Watch, &Ticket{}); err != nil {
			refused = err
			continue
		}
		open["many"]++
	}
	if open["many"] < 300 || open["many"] > 500 || !apierrors.IsTooManyRequests(refused) || !strings.Contains(refused.Error(), "watches open") {
		t.Errorf("clusters of one tenant have %d watches: %v", open["many"], refused)
	}
	for i := range 50 {
		entered(t, q, fmt.Sprintf("tenant%d/u/c", i%5), Watch)
	}
}

func TestAWatchHasASeatUntilItHasStarted(t *testing.T) {
	q := newQueue(Config{Seats: 2})
	w := entered(t, q, "a/u/c", Watch)
	w.Started()
	if q.root.seats != 0 || q.root.active != 0 || q.root.count[Watch] != 1 {
		t.Errorf("a watch that has begun: %+v", q.root)
	}
	w.Leave()
}

func TestMemoryIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		q := newQueue(Config{Bytes: 256 * mib})
		var readers []*Ticket
		refused := 0
		take := func(holder string, bytes int64) {
			r := entered(t, q, holder, Read)
			if err := r.Take(bytes); err != nil {
				if !apierrors.IsTooManyRequests(err) {
					t.Error(err)
				}
				refused++
				r.Leave()
				return
			}
			readers = append(readers, r)
		}
		for range 40 {
			take("a/u/c", 60*mib)
		}
		if refused != 38 || q.root.bytes != 120*mib {
			t.Errorf("%d are refused, %d MiB are in use", refused, q.root.bytes/mib)
		}
		begin := time.Now()
		take("b/u/c", 60*mib)
		take("c/u/c", 30*mib)
		if refused != 38 || time.Since(begin) != 0 {
			t.Errorf("others are refused, or wait %s", time.Since(begin))
		}
		take("d/u/c", 1000*mib) // it would never fit
		take("a/u/d", 1*mib)
		if refused != 38 || time.Since(begin) != 0 {
			t.Errorf("others are refused, or wait %s", time.Since(begin))
		}
		take("e/u/c", 1000*mib)
		if refused != 39 {
			t.Errorf("two accounts use more memory than available")
		}
		waiting := make(chan struct{})
		freed := readers[0]
		go func() {
			take("a/u/c", 60*mib)
			close(waiting)
		}()
		synctest.Wait()
		freed.Leave()
		<-waiting
		for _, r := range readers {
			r.Leave()
		}
		if q.root.bytes != 0 || q.root.seats != 0 || q.oversize != nil || q.hungry.first != nil {
			t.Errorf("%d bytes are left", q.root.bytes)
		}
	})
}

func BenchmarkEnter(b *testing.B) {
	for _, clusters := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			q := newQueue(Config{Seats: 4, Requests: 400, Total: [kinds]int{3000, 1500}})
			holders := make([]Holder, clusters)
			for i := range holders {
				holders[i] = cluster(fmt.Sprintf("a%d/u/c%d", i%100, i))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				t := Ticket{}
				if err := q.Enter(b.Context(), holders[i%clusters], Read, &t); err != nil {
					b.Fatal(err)
				}
				t.Leave()
			}
		})
	}
}

// Clients enter one new workspace after the other. Each of these clusters has used nothing, so only their arrival orders them.
func TestClustersThatArriveTakeTurns(t *testing.T) {
	const ms, clients = time.Millisecond, 64
	l := run(t, 2, func(l *load) {
		for i := range clients {
			l.all.Go(func() {
				for n := 0; l.ctx.Err() == nil; n++ {
					begin, request := time.Now(), &Ticket{}
					err := l.q.Enter(l.ctx, cluster(fmt.Sprintf("one/u/%d-%d", i, n)), Read, request)
					l.mu.Lock()
					l.most["all"] = max(l.most["all"], time.Since(begin))
					l.mu.Unlock()
					if err == nil {
						time.Sleep(ms + time.Duration(i)*time.Microsecond)
						request.Leave()
					}
				}
			})
		}
	})
	if turn := clients / 2 * ms; l.most["all"] > 2*turn {
		t.Errorf("a request waits for %s, want about %s", l.most["all"], turn)
	}
}

// The watch waits between its admission and its list, as while an informer is not filled.
func TestAWatchThatHasNotStartedTakesItsSeatAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 1})
		w := entered(t, q, "a/u/c", Watch)
		sit := w.Stand()
		if hasSeat(w) {
			t.Error("it waits with a seat")
		}
		other := entered(t, q, "b/u/c", Read)
		go sit()
		synctest.Wait()
		if hasSeat(w) {
			t.Error("it continues without waiting for its turn")
		}
		other.Leave()
		synctest.Wait()
		if !hasSeat(w) {
			t.Error("it continues without a seat")
		}
		if w.Started(); hasSeat(w) {
			t.Error("it has a seat and waits for events")
		}
		w.Stand()()
		if hasSeat(w) {
			t.Error("a watch that has started takes a seat")
		}
	})
}

func TestALateAnswerAboutAPlaceDelaysNoOtherHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2})
		slow := make(chan struct{})
		q.config.Place = func(h Holder) Place {
			if h.Cluster == "a/u/slow" {
				<-slow
			}
			return placed(h)
		}
		var late []*Ticket
		var all sync.WaitGroup
		for range 2 {
			ticket := &Ticket{}
			late = append(late, ticket)
			all.Go(func() {
				if err := q.Enter(t.Context(), cluster("a/u/slow"), Read, ticket); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		entered(t, q, "a/u/c", Read).Leave()
		entered(t, q, "b/u/c", Read).Leave()
		close(slow)
		all.Wait()
		if leaf := q.leaves[cluster("a/u/slow")]; late[0].leaf != leaf || late[1].leaf != leaf || leaf.open() != 2 {
			t.Errorf("requests of one holder are in different places: %+v", leaf)
		}
		for _, ticket := range late {
			ticket.Leave()
		}
		if q.root.busy != 0 || q.root.seats != 0 {
			t.Errorf("the queue is not empty: %+v", q.root)
		}
	})
}
