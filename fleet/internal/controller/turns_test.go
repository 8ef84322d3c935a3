package controller

import (
	"container/heap"
	"fmt"
	"testing"
	"time"

	"github.com/kcplane/kcp/fleet/internal/feed"
)

// agenda has the times at which namespaces are decided on again.
type agenda []appointment

type appointment struct {
	at time.Time
	n  feed.Namespace
}

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(appointment)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func TestTenThousandNamespacesMoveAtTheLimitWithFewDecisions(t *testing.T) {
	const namespaces, perMinute = 10000, 600
	start := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	turns, moved, decisions, last := newTurns(perMinute), map[int]int{}, 0, start
	waiting := &agenda{}
	for i := range namespaces {
		heap.Push(waiting, appointment{start, feed.Namespace{Name: fmt.Sprint(i)}})
	}
	for waiting.Len() > 0 {
		next := heap.Pop(waiting).(appointment)
		decisions++
		if again := turns.wait(next.n, next.at); again > 0 {
			heap.Push(waiting, appointment{next.at.Add(again), next.n})
			continue
		}
		moved[int(next.at.Sub(start)/time.Minute)]++
		last = next.at
	}
	for minute, n := range moved {
		if n > 2*perMinute { // turns that were not taken in the minute before
			t.Errorf("%d namespaces moved in minute %d", n, minute)
		}
	}
	if took, want := last.Sub(start), namespaces/perMinute*time.Minute; took > want*11/10 {
		t.Errorf("all moved after %s, want about %s", took, want)
	}
	t.Logf("%d decisions, the last move after %s", decisions, last.Sub(start))
	if decisions > 20*namespaces {
		t.Errorf("%d decisions for %d namespaces", decisions, namespaces)
	}
	if len(turns.waiting) > 0 {
		t.Errorf("%d namespaces are still remembered", len(turns.waiting))
	}
}

func TestANamespaceThatDoesNotMoveAnyMoreIsForgotten(t *testing.T) {
	turns, now := newTurns(0), time.Now()
	n := feed.Namespace{Name: "a"}
	if again := turns.wait(n, now); again != longestWait {
		t.Errorf("without any moves, it is decided on again after %s", again)
	}
	turns.forget(n)
	if len(turns.waiting) > 0 {
		t.Error("it is remembered")
	}
}
