package forward

import (
	"errors"
	"io"
	"sync"
)

// keptBody is the number of bytes of a body that are kept, so that the request can be sent to another shard.
const keptBody = 64 << 10

// errSent ends the second reading of a body that was not kept.
var errSent = errors.New("the body of the request was sent to another shard already")

// body is the body of a request that may be sent several times. It is read once from the client, by the attempt that needs it.
//
// Invariants:
//   - kept has all bytes that were read, until it is dropped. After that, no other attempt can read.
//   - An attempt that is over takes nothing from the client: what it was waiting for goes to kept.
type body struct {
	mu      sync.Mutex
	from    io.ReadCloser
	kept    []byte
	dropped bool
	err     error // of from

	// last is used by the goroutine of the request only.
	last *attempt
}

func newBody(from io.ReadCloser) *body { return &body{from: from} }

// attempt returns a reader from the beginning of the body, and ends the one before; nil if the body is not kept.
func (b *body) attempt() *attempt {
	b.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropped {
		return nil
	}
	b.last = &attempt{body: b}
	return b.last
}

// close ends the last attempt: nothing is read from the client after that, whose request may be over. A body may be nil.
func (b *body) close() {
	if b != nil && b.last != nil {
		_ = b.last.Close()
	}
}

// drop stops keeping the body: there will be no other attempt.
func (b *body) drop() {
	// Without waiting for a reader of the client: the response has arrived before the end of the body.
	if b.mu.TryLock() {
		b.dropped = true
		b.mu.Unlock()
	}
}

// attempt reads a body for one attempt.
type attempt struct {
	*body
	position int

	closing sync.Mutex
	closed  bool
}

// Read implements io.Reader.
func (a *attempt) Read(p []byte) (int, error) {
	if a.over() {
		return 0, errSent
	}
	b := a.body
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case a.over():
		return 0, errSent
	case a.position < len(b.kept):
		n := copy(p, b.kept[a.position:])
		a.position += n
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	n, err := b.from.Read(p)
	b.err = err
	if !b.dropped {
		if b.kept = append(b.kept, p[:n]...); len(b.kept) > keptBody {
			b.dropped = true
		}
		a.position = len(b.kept)
		if b.dropped {
			b.kept, a.position = nil, 0
		}
	}
	return n, err
}

func (a *attempt) over() bool {
	a.closing.Lock()
	defer a.closing.Unlock()
	return a.closed
}

// Close implements io.Closer. It ends the attempt, not the body.
func (a *attempt) Close() error {
	a.closing.Lock()
	defer a.closing.Unlock()
	a.closed = true
	return nil
}
