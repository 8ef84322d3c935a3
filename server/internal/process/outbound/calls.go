package outbound

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
)

// Limits of the connections to hosts that tenants configure.
const (
	maxHeaderBytes = 64 << 10
	idlePerHost    = 16
	// idleConnection is the time that a connection stays open without a call.
	idleConnection = 30 * time.Second
	// maxReused is the number of open connections above which connections are not kept for the next call.
	maxReused = 1024
)

// Calls makes calls to hosts that tenants configure. All calls share the limits of the process.
type Calls struct {
	networks *Networks
	open     atomic.Int64 // connections
	large    budget
}

// NewCalls returns Calls to hosts in networks.
func NewCalls(networks *Networks) *Calls { return &Calls{networks: networks} }

// RoundTripper returns a RoundTripper that calls hosts with config within limits. It uses HTTP/1.1 only: then a host can send nothing but
// responses, which have limits.
func (c *Calls) RoundTripper(config *tls.Config, limits Limits) http.RoundTripper {
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	t := Transport(config)
	t.Proxy, t.DialContext = http.ProxyFromEnvironment, c.dial
	t.ForceAttemptHTTP2, t.Protocols = false, &http.Protocols{}
	t.Protocols.SetHTTP1(true)
	t.MaxResponseHeaderBytes = maxHeaderBytes
	t.MaxIdleConnsPerHost, t.IdleConnTimeout = idlePerHost, idleConnection
	limits.large = &c.large
	bounded := limits.RoundTripper(t)
	return fairqueue.RoundTripper(roundTripper(func(r *http.Request) (*http.Response, error) {
		if c.open.Load() >= maxReused {
			r = r.Clone(r.Context())
			r.Close = true
		}
		return bounded.RoundTrip(r)
	}))
}

func (c *Calls) dial(ctx context.Context, network, address string) (net.Conn, error) {
	connected, err := c.networks.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return &connection{Conn: connected, open: &c.open}, nil
}

// connection is a connection that is counted until it is closed.
type connection struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

// Close implements net.Conn.
func (c *connection) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
