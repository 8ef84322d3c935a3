package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	// Protocol is the value of the header Upgrade of the request with which an agent opens its connection.
	Protocol = "fleet-tunnel/1"

	// keepAlive is the time after which a dead connection is noticed, and a write to it gives up.
	keepAlive = 10 * time.Second
	// responseTimeout is the maximum time until the header of a response.
	responseTimeout = 30 * time.Second
	maxHeaderBytes  = 64 << 10
	// window is the number of bytes of one stream that the receiver holds in memory.
	window = 256 << 10
	// maxStreams is the number of streams of one connection that wait for the other side.
	maxStreams = 256
)

// ErrAway is the error for a cluster whose agent is not connected.
var ErrAway = errors.New("its agent is not connected")

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog, c.MaxStreamWindowSize = maxStreams, window
	c.KeepAliveInterval, c.ConnectionWriteTimeout = keepAlive, keepAlive
	c.LogOutput = io.Discard
	return c
}

// Tunnels are the connections of agents. All methods are safe for concurrent use.
type Tunnels struct {
	mu   sync.Mutex // guards open
	open map[string]*connection
}

// connection is the connection of the agent of one cluster.
type connection struct {
	session   *yamux.Session
	transport *http.Transport
}

// Serve upgrades the connection of a request, and uses it for a cluster until it breaks, another one replaces it, or the context ends. The
// caller has made sure that the agent of the cluster sent the request.
func (t *Tunnels) Serve(ctx context.Context, w http.ResponseWriter, r *http.Request, cluster string) {
	if r.Header.Get("Upgrade") != Protocol {
		http.Error(w, "the connection must be upgraded to "+Protocol, http.StatusBadRequest)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "the connection cannot be upgraded", http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	if err := accept(conn, buffered); err != nil {
		return
	}
	session, err := yamux.Client(conn, config())
	if err != nil {
		return
	}
	defer session.Close()
	c := &connection{session: session}
	c.transport = &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return session.Open() },
		// A stream costs little, and an idle one would count against the limit.
		DisableKeepAlives: true, DisableCompression: true,
		ResponseHeaderTimeout: responseTimeout, MaxResponseHeaderBytes: maxHeaderBytes,
	}
	t.replace(cluster, nil, c)
	defer t.replace(cluster, c, nil)
	go func() { // only the fleet opens streams
		if _, err := session.Accept(); err == nil {
			session.Close()
		}
	}()
	select {
	case <-ctx.Done():
	case <-session.CloseChan():
	}
}

// accept completes the upgrade. The agent sends nothing before it has the response.
func accept(conn net.Conn, buffered *bufio.ReadWriter) error {
	if buffered.Reader.Buffered() > 0 {
		return errors.New("the agent sends before the connection is upgraded")
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Protocol)
	return err
}

// replace replaces the connection of a cluster if it is former, or former is nil. It closes the one that it replaces.
func (t *Tunnels) replace(cluster string, former, next *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.open[cluster]
	if former != nil && now != former {
		return
	}
	if now != nil {
		now.session.Close()
	}
	if t.open == nil {
		t.open = map[string]*connection{}
	}
	if t.open[cluster] = next; next == nil {
		delete(t.open, cluster)
	}
}

// To returns what sends requests to the agent of a cluster. The host of their URLs has no meaning.
func (t *Tunnels) To(cluster string) (http.RoundTripper, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.open[cluster]
	if c == nil {
		return nil, ErrAway
	}
	return c.transport, nil
}

// Count returns the number of clusters whose agent is connected.
func (t *Tunnels) Count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open)
}
