package workspace

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/informers"
)

// expectedInterval is how long a workspace waits at least for its logical cluster before it is reconciled, and half of the longest wait.
const expectedInterval = time.Second

// expected has the workspaces whose logical clusters have not arrived in their informer: most new ones, for some milliseconds. Both were
// stored together. A workspace that still waits after a while is reconciled, and most are not.
//
// Invariants:
//   - A key is in at most one of both generations. If there are keys, timer is set.
type expected struct {
	clock   clock.WithDelayedExecution
	enqueue func(key informers.Key)

	mu          sync.Mutex
	young, aged map[informers.Key]struct{}
	timer       clock.Timer
}

func newExpected(c clock.WithDelayedExecution, enqueue func(informers.Key)) *expected {
	return &expected{clock: c, enqueue: enqueue, young: map[informers.Key]struct{}{}, aged: map[informers.Key]struct{}{}}
}

// add makes a workspace wait.
func (e *expected) add(key informers.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.aged, key)
	e.young[key] = struct{}{}
	if e.timer == nil {
		e.timer = e.clock.AfterFunc(expectedInterval, e.age)
	}
}

// arrived ends the wait of a workspace that needs nothing any more.
func (e *expected) arrived(key informers.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.young, key)
	delete(e.aged, key)
}

// age reconciles the workspaces that have waited for the interval.
func (e *expected) age() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key := range e.aged {
		e.enqueue(key)
	}
	e.young, e.aged = map[informers.Key]struct{}{}, e.young
	if e.timer = nil; len(e.aged) > 0 {
		e.timer = e.clock.AfterFunc(expectedInterval, e.age)
	}
}
