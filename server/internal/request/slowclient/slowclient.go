// Package slowclient gives up clients that stand still: that neither read what they are sent, nor send what they have begun. What a
// request holds is theirs for as long as it goes on.
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
	// readStep is how many bytes of a body a client must send, and writeStep how many of an answer it must read, to be given the time
	// again. Less is enough if that is all.
	readStep, writeStep = 16 << 10, 256 << 10
	// checks is how often within the time waiting requests are looked at.
	checks = 8
)

// Clients are those of one server.
type Clients struct {
	timeout time.Duration
	clock   clock.PassiveClock

	mu      sync.Mutex
	waiting map[*transfer]struct{}
	running bool
}

// New returns clients that are given up when they have kept the server waiting for timeout without progress.
func New(timeout time.Duration, clock clock.PassiveClock) *Clients {
	return &Clients{timeout: timeout, clock: clock, waiting: map[*transfer]struct{}{}}
}

// WithTimeout ends requests whose clients stand still. It must be the outermost handler.
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
			_ = control.SetWriteDeadline(time.Time{}) // that of the request before it on the connection
		}
		defer func() {
			hijacked, _ := out.finish()
			if hijacked {
				return
			}
			// net/http writes now what is buffered, and reads what is left of a body in HTTP/1.
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
	moved   int // since waited was zero
	pending int
	expired bool
	// finished is set when the handler has returned and expire must not be called, complete when nothing is left to move.
	finished, complete, hijacked bool
}

// finish makes sure that the request is not given up any more.
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

// end is called when the server waits no longer. Moving step bytes, or all there is, gives the client the whole time again.
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

// progress notes what was moved.
func (t *transfer) progress(bytes, step int, all bool) {
	now := t.clients.clock.Now()
	t.waited += now.Sub(t.since)
	t.since = now
	if t.moved += bytes; t.moved >= step || all {
		t.moved, t.waited = 0, 0
	}
}

// check gives up the clients that have stood still for too long.
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

// giveUp fails what the server has waited for longer than timeout. It holds the lock: when the server does not wait any more, the
// request may have ended.
func (t *transfer) giveUp(timeout time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.finished && !t.since.IsZero() && t.waited+t.clients.clock.Since(t.since) >= timeout {
		t.expired = true
		_ = t.expire(time.Unix(1, 0))
	}
}

// response is what a client reads. It implements storage.Consumer.
type response struct {
	http.ResponseWriter
	transfer
}

var _ storage.Consumer = &response{}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes in steps: each of them shows that the client reads.
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

// Flush implements http.Flusher. It returns when the client is sent all that was written.
func (w *response) Flush() {
	w.begin(0)
	defer w.end(0, writeStep, true)
	w.ResponseWriter.(http.Flusher).Flush() // it is asked for only if there is one
}

// Pending implements storage.Consumer.
func (w *response) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending
}

// GiveUp implements storage.Consumer.
func (w *response) GiveUp() { w.giveUp(0) }

// Hijack implements http.Hijacker. The connection is no more the server's.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := w.ResponseWriter.(http.Hijacker).Hijack() // it is asked for only if there is one
	if err == nil {
		w.mu.Lock()
		w.hijacked = true
		w.mu.Unlock()
	}
	return conn, buffer, err
}

// request is a body that a client sends.
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

// Listener returns listener with connections that fail when their client reads nothing of a write for timeout. It is what ends
// connections of HTTP/2 whose streams cannot be reset because nothing can be written, and those that were hijacked.
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
