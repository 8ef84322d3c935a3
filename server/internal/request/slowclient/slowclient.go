// Package slowclient ends requests whose clients make no progress: they neither read the response nor send the rest of the body. A request
// holds resources until it ends.
package slowclient

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/storage"
)

const (
	// A client must send readStep bytes of a body, or read writeStep bytes of a response, to restart the timeout. Less is enough at the end.
	readStep, writeStep = 16 << 10, 256 << 10
	// checks is the number of checks of waiting requests during the timeout.
	checks = 8
)

// Clients are the clients of one server.
type Clients struct {
	timeout time.Duration
	clock   clock.PassiveClock

	mu      sync.Mutex
	waiting map[*transfer]struct{}
	running bool
}

// New returns Clients whose requests end when they keep the server waiting for timeout without progress.
func New(timeout time.Duration, clock clock.PassiveClock) *Clients {
	return &Clients{timeout: timeout, clock: clock, waiting: map[*transfer]struct{}{}}
}

// WithTimeout ends requests whose clients make no progress. It must be the outermost handler.
func (c *Clients) WithTimeout(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		out := &response{ResponseWriter: w, transfer: transfer{clients: c, expire: control.SetWriteDeadline}}
		r = r.WithContext(storage.WithConsumer(r.Context(), out))
		var in *request
		if r.Body != nil && r.Body != http.NoBody {
			in = &request{ReadCloser: r.Body, transfer: transfer{clients: c, expire: control.SetReadDeadline}}
			r.Body = in
		}
		if r.ProtoMajor == 1 {
			_ = control.SetWriteDeadline(time.Time{}) // resets the deadline of the previous request on the connection
		}
		defer func() {
			hijacked, _ := out.finish()
			if hijacked {
				return
			}
			// Now net/http writes buffered data, and reads the rest of a body in HTTP/1.
			end := time.Now().Add(c.timeout)
			_ = control.SetWriteDeadline(end)
			if in == nil {
				return
			}
			if _, complete := in.finish(); !complete && r.ProtoMajor == 1 {
				_ = control.SetReadDeadline(end)
			}
		}()
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(out), r)
	})
}

// transfer is one direction of a request.
type transfer struct {
	clients *Clients
	expire  func(time.Time) error

	mu      sync.Mutex
	since   time.Time // zero unless the server waits for the client
	waited  time.Duration
	moved   int // bytes since waited was zero
	pending int
	expired bool
	// finished is set when the handler has returned and expire must not be called, complete when all data is transferred.
	finished, complete, hijacked bool
}

// finish makes sure that expire is not called anymore.
func (t *transfer) finish() (hijacked, complete bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finished = true
	return t.hijacked, t.complete
}

// begin is called before the server may wait for the client.
func (t *transfer) begin(bytes int) {
	t.mu.Lock()
	t.since, t.pending = t.clients.clock.Now(), bytes
	t.mu.Unlock()
	c := t.clients
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[t] = struct{}{}
	if !c.running {
		c.running = true
		time.AfterFunc(c.timeout/checks, c.check)
	}
}

// end is called when the server no longer waits. Transferring step bytes, or all data, restarts the timeout.
func (t *transfer) end(bytes, step int, all bool) {
	c := t.clients
	c.mu.Lock()
	delete(c.waiting, t)
	c.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.progress(bytes, step, all)
	t.since, t.pending = time.Time{}, 0
}

// progress records transferred bytes.
func (t *transfer) progress(bytes, step int, all bool) {
	now := t.clients.clock.Now()
	t.waited += now.Sub(t.since)
	t.since = now
	if t.moved += bytes; t.moved >= step || all {
		t.moved, t.waited = 0, 0
	}
}

// check ends the requests of clients that have made no progress for too long.
func (c *Clients) check() {
	c.mu.Lock()
	waiting := make([]*transfer, 0, len(c.waiting))
	for t := range c.waiting {
		waiting = append(waiting, t)
	}
	if c.running = len(waiting) > 0; c.running {
		time.AfterFunc(c.timeout/checks, c.check)
	}
	c.mu.Unlock()
	for _, t := range waiting {
		t.giveUp(c.timeout)
	}
}

// giveUp ends a transfer for which the server has waited longer than timeout. It holds the lock, because the request may end when the
// server no longer waits.
func (t *transfer) giveUp(timeout time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.finished && !t.since.IsZero() && t.waited+t.clients.clock.Since(t.since) >= timeout {
		t.expired = true
		_ = t.expire(time.Unix(1, 0))
	}
}

// response is the response that a client reads. It implements storage.Consumer.
type response struct {
	http.ResponseWriter
	transfer
}

var _ storage.Consumer = &response{}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes in steps. Each completed step shows that the client reads.
func (w *response) Write(p []byte) (n int, err error) {
	w.begin(len(p))
	defer func() { w.end(0, writeStep, false) }()
	for first := true; first || (len(p) > n && err == nil); first = false {
		var written int
		written, err = w.ResponseWriter.Write(p[n:min(len(p), n+writeStep)])
		n += written
		w.mu.Lock()
		w.progress(written, writeStep, false)
		w.mu.Unlock()
	}
	return n, err
}

// Flush implements http.Flusher. It returns when all written data is sent to the client.
func (w *response) Flush() {
	w.begin(0)
	defer w.end(0, writeStep, true)
	w.ResponseWriter.(http.Flusher).Flush() // callers check that it is implemented
}

// Pending implements storage.Consumer.
func (w *response) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending
}

// GiveUp implements storage.Consumer.
func (w *response) GiveUp() { w.giveUp(0) }

// Hijack implements http.Hijacker. The connection no longer belongs to the server.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := w.ResponseWriter.(http.Hijacker).Hijack() // callers check that it is implemented
	if err == nil {
		w.mu.Lock()
		w.hijacked = true
		w.mu.Unlock()
	}
	return conn, buffer, err
}

// request is the body that a client sends.
type request struct {
	io.ReadCloser
	transfer
}

// Read implements io.Reader.
func (r *request) Read(p []byte) (int, error) {
	r.begin(0)
	n, err := r.ReadCloser.Read(p)
	r.end(n, readStep, false)
	if err == nil {
		return n, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.complete = errors.Is(err, io.EOF); r.expired {
		err = apierrors.NewGenericServerResponse(http.StatusRequestTimeout, "read", schema.GroupResource{}, "",
			"the body of the request arrived too slowly: send it again", 0, true)
	}
	return n, err
}

// Listener returns listener with connections that fail when their client does not read anything for timeout during a write. It ends HTTP/2
// connections whose streams cannot be reset because nothing can be written, and hijacked connections.
func Listener(listener net.Listener, timeout time.Duration) net.Listener {
	return progressing{listener, timeout}
}

type progressing struct {
	net.Listener
	timeout time.Duration
}

// Accept implements net.Listener.
func (l progressing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &connection{c, l.timeout}, nil
}

type connection struct {
	net.Conn
	timeout time.Duration
}

// Write implements net.Conn.
func (c *connection) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
