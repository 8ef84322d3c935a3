package sharded

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Relay is the network in front of a process: it passes bytes on to its address, can delay them, and can be cut.
type Relay struct {
	// URL is the URL of the process through the relay.
	URL string

	target   string
	listener net.Listener

	mu    sync.Mutex
	delay time.Duration
	cut   bool
	open  map[net.Conn]struct{}
}

// newRelay returns a relay to an address of this machine.
func newRelay(target string) (*Relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{URL: fmt.Sprintf("https://%s", listener.Addr()), target: target, listener: listener, open: map[net.Conn]struct{}{}}
	go r.accept()
	return r, nil
}

// Delay makes the relay wait before it passes bytes on, in each direction.
func (r *Relay) Delay(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = delay
}

// Cut closes all connections, and makes the relay refuse others until Mend.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for connection := range r.open {
		_ = connection.Close()
	}
}

// Mend ends Cut.
func (r *Relay) Mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
}

func (r *Relay) close() {
	_ = r.listener.Close()
	r.Cut()
}

func (r *Relay) accept() {
	for {
		connection, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		go r.pass(connection)
	}
}

// pass connects a connection to the process until one of them is closed.
func (r *Relay) pass(from net.Conn) {
	defer r.closed(from)
	if !r.opened(from) {
		return
	}
	to, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer r.closed(to)
	if !r.opened(to) {
		return
	}
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			r.copy(pair[1], pair[0])
			ended <- struct{}{}
		}()
	}
	<-ended
}

// copy passes bytes on until an error. Each read waits for the delay in a goroutine of its own, so that a delay does not limit throughput.
func (r *Relay) copy(to io.Writer, from io.Reader) {
	type chunk struct {
		at   time.Time
		data []byte
	}
	chunks := make(chan chunk, 64)
	go func() {
		defer close(chunks)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				r.mu.Lock()
				at := time.Now().Add(r.delay)
				r.mu.Unlock()
				chunks <- chunk{at, buffer[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	broken := false
	for c := range chunks { // until the end also after an error, so that the reader ends
		time.Sleep(time.Until(c.at))
		if !broken {
			_, err := to.Write(c.data)
			broken = err != nil
		}
	}
}

func (r *Relay) opened(connection net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.cut {
		r.open[connection] = struct{}{}
	}
	return !r.cut
}

func (r *Relay) closed(connection net.Conn) {
	r.mu.Lock()
	delete(r.open, connection)
	r.mu.Unlock()
	_ = connection.Close()
}
