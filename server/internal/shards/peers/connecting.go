package peers

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// connectedFor is how long a connection is expected to exist after a call has used it. The client closes idle ones later than that.
const connectedFor = 30 * time.Second

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

// opening is the attempt of a call to open a connection. err is set before done is closed.
type opening struct {
	done chan struct{}
	err  error
}

// begin waits while another call opens a connection to a shard. It returns the context for the call, and a function to call with its
// result, or the error with which the other call has failed.
func (c *connecting) begin(ctx context.Context, shard string) (context.Context, func(err error), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.states[shard]
	if s == nil {
		s = &connection{}
		c.states[shard] = s
	}
	for s.opening != nil {
		if err := c.wait(ctx, s.opening); err != nil {
			return nil, nil, err
		}
	}
	if c.clock.Since(s.last) < connectedFor {
		return ctx, func(err error) { c.end(s, nil, err) }, nil
	}
	attempt := &opening{done: make(chan struct{})}
	s.opening = attempt
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { c.end(s, attempt, nil) }})
	return traced, func(err error) { c.end(s, attempt, err) }, nil
}

// wait unlocks c until an attempt has ended, and returns its error. A caller that gave up says nothing about the shard.
func (c *connecting) wait(ctx context.Context, attempt *opening) error {
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-attempt.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if errors.Is(attempt.err, context.Canceled) {
		return nil
	}
	return attempt.err
}

// end records whether a call had a connection, and ends its attempt to open one.
func (c *connecting) end(s *connection, attempt *opening, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.last = c.clock.Now(); err != nil {
		s.last = time.Time{}
	}
	if attempt != nil && s.opening == attempt {
		attempt.err, s.opening = err, nil
		close(attempt.done)
	}
}
