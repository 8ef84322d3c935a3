package peers

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// firstPause and lastPause are how long a shard that does not respond is not called: twice as long after each failure.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// breakers has the breaker of each shard that was called. Shards are few, and only administrators create them.
type breakers struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	states map[string]*breaker
}

// breaker of a shard.
//
// Invariants:
//   - Without failures, every call is tried.
//   - After a failure, no call is tried until the pause ends. Then one call is tried at a time, until one succeeds.
type breaker struct {
	failures int
	until    time.Time
	trying   bool
}

// pause returns how long a shard is not called after a number of failures in a row.
func pause(failures int) time.Duration {
	p := firstPause
	for range failures - 1 {
		if p *= 2; p >= lastPause {
			return lastPause
		}
	}
	return p
}

func (b *breakers) closed(shard string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.states[shard]
	return !ok || s.failures == 0 || (!s.trying && !b.clock.Now().Before(s.until))
}

// begin reports whether a call may be tried. If so, the caller calls end.
func (b *breakers) begin(shard string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.states[shard]
	if !ok {
		s = &breaker{}
		b.states[shard] = s
	}
	if s.failures == 0 {
		return true
	}
	if s.trying || b.clock.Now().Before(s.until) {
		return false
	}
	s.trying = true
	return true
}

// end records the result of a call. A caller that gave up says nothing about the shard, nor does one that was not sent: the failure of the
// call that it has waited for counts once.
func (b *breakers) end(shard string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.states[shard]
	s.trying = false
	switch {
	case err == nil:
		s.failures = 0
	case errors.Is(err, context.Canceled), errors.As(err, new(waited)):
	default:
		s.failures++
		s.until = b.clock.Now().Add(pause(s.failures))
	}
}
