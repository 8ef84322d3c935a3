package peers

import (
	"context"
	"net/http/httptrace"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// connectedFor is how long a connection is expected to exist after a call has used it. The client closes idle ones later than that.
const connectedFor = 30 * time.Second

// patience is how long a call waits for another one that opens a connection before it tries that, too, and how long a shard must have had
// for a response so that the deadline of a caller says something about the shard.
const patience = time.Second

// connecting lets one call open the connection to a shard that all calls share, while others wait for it. Otherwise each call that begins
// before the first handshake ends would make a handshake, and close its connection afterwards.
type connecting struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	states map[string]*connection
}

type connection struct {
	last    time.Time // when a call last used a connection; zero after a failure
	opening *opening  // nil if no call opens a connection
}

// opening is the attempt of a call to open a connection. When done is closed, err is the error if the shard has no connection, and nil if
// it has one, or if the caller gave up.
type opening struct {
	done  chan struct{}
	ended bool
	err   error
}

// waited is the error of a call that was not sent, because it has waited for another one.
type waited struct{ cause error }

func (w waited) Error() string { return w.cause.Error() }
func (w waited) Unwrap() error { return w.cause }

// begin waits while another call opens a connection to a shard. It returns the context for the call, and a function to call with its
// result. If the call cannot be sent, the error is waited.
func (c *connecting) begin(ctx context.Context, shard string) (context.Context, func(err error), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.states[shard]
	if s == nil {
		s = &connection{}
		c.states[shard] = s
	}
	for s.opening != nil {
		attempt := s.opening
		if err := c.wait(ctx, attempt); err != nil {
			return nil, nil, waited{err}
		}
		if s.opening == attempt { // it takes too long
			break
		}
	}
	if s.opening == nil && c.clock.Since(s.last) < connectedFor {
		return ctx, func(err error) { c.end(ctx, s, nil, err) }, nil
	}
	attempt := &opening{done: make(chan struct{})}
	s.opening = attempt
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { c.end(ctx, s, attempt, nil) }})
	return traced, func(err error) { c.end(ctx, s, attempt, err) }, nil
}

// wait unlocks c until an attempt has ended, but not longer than the patience of a call, and returns the error of the attempt or of ctx.
func (c *connecting) wait(ctx context.Context, attempt *opening) error {
	c.mu.Unlock()
	defer c.mu.Lock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-attempt.done:
		return attempt.err
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end records whether the call of ctx had a connection, and ends its attempt to open one. A caller that gave up says nothing about the
// shard: a call that has waited for it tries itself.
func (c *connecting) end(ctx context.Context, s *connection, attempt *opening, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.last = c.clock.Now(); err != nil {
		s.last = time.Time{}
	}
	if attempt == nil || attempt.ended {
		return
	}
	if attempt.ended = true; ctx.Err() == nil {
		attempt.err = err
	}
	if close(attempt.done); s.opening == attempt {
		s.opening = nil
	}
}
