package forward

import (
	"context"
	"time"
)

// abandonedFor is how long a request whose client has left waits for the header of its response.
const abandonedFor = 10 * time.Second

// patient returns a context for sending a request. It ends with parent after answered was called, and before that only a while after
// parent.
//
// The requests of all users share connections to a shard. A server closes an HTTP/2 connection on which many requests are canceled before
// they are answered, and with it the watches of others. So a client that cancels requests pays for each until it is answered: its request
// at the front proxy stays open, and counts for its limit. The server closes the client's own connection then.
func patient(parent context.Context, patience time.Duration) (ctx context.Context, answered func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	done := make(chan struct{})
	context.AfterFunc(parent, func() {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		}
		cancel(context.Cause(parent))
	})
	return ctx, func() { close(done) }
}
