package forward

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// abandonedFor is how long a request whose client has left waits for the header of its response.
const abandonedFor = 10 * time.Second

// patience is the context of sending a request. It ends with its parent after answered was called, and before that only a while after its
// parent.
//
// The requests of all users share connections to a shard. A server closes an HTTP/2 connection on which many requests are canceled before
// they are answered, and with it the watches of others. So a client that cancels requests pays for each until it is answered: its request
// at the front proxy stays open, and counts for its limit. The server closes the client's own connection then.
type patience struct {
	context.Context
	cancel context.CancelFunc
	// unwatch stops watching the parent.
	unwatch func() bool

	mu      sync.Mutex
	over    bool        // answered was called
	waiting *time.Timer // set when the parent has ended before
}

// patient returns a context that outlives parent for a while.
func patient(parent context.Context, while time.Duration) *patience {
	p := &patience{}
	p.Context, p.cancel = context.WithCancel(context.WithoutCancel(parent))
	p.unwatch = context.AfterFunc(parent, func() { p.abandoned(while) })
	return p
}

// abandoned ends the context now, or after a while if there is no answer yet.
func (p *patience) abandoned(while time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		p.cancel()
		return
	}
	p.waiting = time.AfterFunc(while, p.cancel)
}

// answered is called when the header of the response has arrived, or never will.
func (p *patience) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.waiting != nil {
		p.waiting.Stop()
		p.cancel()
	}
}

// end ends the context when the response is complete.
func (p *patience) end() {
	p.unwatch()
	p.cancel()
}

// responseBody is the body of a response. Closing it ends the request too.
type responseBody struct {
	io.ReadCloser
	patience *patience
	sent     *body
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.patience.end()
	b.sent.close()
	return err
}

// until ends the context, and reading the body of the request, with a response. An upgraded connection ends with the parent.
func (p *patience) until(response *http.Response, sent *body) {
	if response.StatusCode != http.StatusSwitchingProtocols {
		response.Body = &responseBody{response.Body, p, sent}
	}
}
