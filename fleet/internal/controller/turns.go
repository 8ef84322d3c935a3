package controller

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kcplane/kcp/fleet/internal/feed"
)

// The time until a namespace that waits for its turn is decided on again.
const (
	shortestWait = time.Second
	longestWait  = time.Minute
)

// turns limits how many namespaces move in a minute. However many of them wait, together they are decided on again about as often as one
// of them may move, so that a cluster that is drained does not delay the decisions about all other namespaces.
type turns struct {
	limiter *rate.Limiter

	mu      sync.Mutex // guards waiting
	waiting map[feed.Namespace]bool
}

func newTurns(perMinute int) *turns {
	limit := rate.Limit(float64(perMinute) / time.Minute.Seconds())
	return &turns{limiter: rate.NewLimiter(limit, perMinute), waiting: map[feed.Namespace]bool{}}
}

// wait returns when to decide again on a namespace that has to move; 0 means that it moves now.
func (t *turns) wait(n feed.Namespace, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limiter.AllowN(now, 1) {
		delete(t.waiting, n)
		return 0
	}
	t.waiting[n] = true
	seconds := float64(len(t.waiting)) / max(float64(t.limiter.Limit()), 1/longestWait.Seconds())
	return max(shortestWait, min(longestWait, time.Duration(seconds*float64(time.Second))))
}

// count returns how many namespaces wait.
func (t *turns) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

// forget removes a namespace that does not have to move any more.
func (t *turns) forget(n feed.Namespace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, n)
}
