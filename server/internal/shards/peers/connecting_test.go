package peers_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
)

// counting serves calls by HTTP/2, and counts the handshakes. Each handshake waits until proceed is closed.
func counting(t *testing.T, authority *peerstest.Authority, handshakes *atomic.Int64, proceed <-chan struct{}) *httptest.Server {
	t.Helper()
	s := peers.NewServer(authority, scheme.Codecs)
	echo(s)
	server := httptest.NewUnstartedServer(s.WithCalls(http.NotFoundHandler()))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{authority.Certificate(t, "server")},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			handshakes.Add(1)
			<-proceed
			return nil, nil
		}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestCallsAtTheSameTimeShareOneHandshake(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	var handshakes atomic.Int64
	proceed := make(chan struct{})
	server := counting(t, authority, &handshakes, proceed)
	clock := testingclock.NewFakePassiveClock(time.Now())
	begun := make(chan struct{}, 40)
	c, err := peers.NewClients(peers.Config{
		TLS: authority.ClientConfig(t, authority.Peer(t, peers.Shard, "two")), Clock: clock,
		URL: func(string) (string, bool) { begun <- struct{}{}; return server.URL, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	call := func() error {
		_, err := peers.Call[question, answer](t.Context(), c, "one", "echo", question{"hello"})
		return err
	}
	for _, idle := range []time.Duration{0, time.Hour} {
		clock.SetTime(clock.Now().Add(idle))
		var group errgroup.Group
		for range 20 {
			group.Go(call)
		}
		for range 20 {
			<-begun
		}
		if idle == 0 {
			close(proceed)
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if got := handshakes.Load(); got != 1 {
		t.Errorf("%d handshakes, want 1", got)
	}
}

func TestACallWaitsNoLongerThanItsContextForAConnection(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	var handshakes atomic.Int64
	proceed := make(chan struct{})
	server := counting(t, authority, &handshakes, proceed)
	defer close(proceed)
	c := clients(t, server, authority, authority.Peer(t, peers.Shard, "two"))
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	for range 3 {
		group.Go(func() error {
			_, err := peers.Call[question, answer](ctx, c, "one", "echo", question{"hello"})
			return err
		})
	}
	for handshakes.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := group.Wait(); !peers.IsUnreachable(err) {
		t.Errorf("the calls returned %v", err)
	}
	if !c.Answers("one") {
		t.Error("callers that gave up say that the shard does not respond")
	}
}

// elapsed is a clock at which the same time has passed since any other.
type elapsed struct {
	*testingclock.FakePassiveClock
	since time.Duration
}

func (e *elapsed) Since(time.Time) time.Duration { return e.since }

func TestADeadlineThatIsSoonOverSaysNothingAboutTheShard(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	var handshakes atomic.Int64
	proceed := make(chan struct{})
	server := counting(t, authority, &handshakes, proceed)
	defer close(proceed)
	for _, took := range []time.Duration{0, 2 * time.Second} {
		c, err := peers.NewClients(peers.Config{
			TLS: authority.ClientConfig(t, authority.Peer(t, peers.Shard, "two")), Clock: &elapsed{testingclock.NewFakePassiveClock(time.Now()), took},
			URL: func(string) (string, bool) { return server.URL, true },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err = peers.Call[question, answer](ctx, c, "one", "echo", question{"hello"})
		tried := c.Answers("one")
		if cancel(); !peers.IsUnreachable(err) || tried != (took == 0) {
			t.Errorf("after %s without a response, the call returned %v; another call would be tried: %t", took, err, tried)
		}
	}
}

func TestCallsFailWithTheCallThatOpensTheirConnection(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	var handshakes atomic.Int64
	proceed := make(chan struct{})
	server := counting(t, authority, &handshakes, proceed)
	begun := make(chan struct{}, 20)
	clock := testingclock.NewFakePassiveClock(time.Now())
	c, err := peers.NewClients(peers.Config{
		TLS: peerstest.NewAuthority(t).ClientConfig(t, authority.Peer(t, peers.Shard, "two")), // which does not trust the server
		URL: func(string) (string, bool) { begun <- struct{}{}; return server.URL, true }, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 20)
	for range 20 {
		go func() {
			_, err := peers.Call[question, answer](t.Context(), c, "one", "echo", question{"hello"})
			failed <- err
		}()
	}
	for range 20 {
		<-begun
	}
	close(proceed)
	for range 20 {
		if err := <-failed; !peers.IsUnreachable(err) {
			t.Errorf("a call returned %v", err)
		}
	}
	if c.Answers("one") {
		t.Error("the shard is taken for one that responds")
	}
	if clock.SetTime(clock.Now().Add(100 * time.Millisecond)); !c.Answers("one") {
		t.Error("one failure counts more than once")
	}
}
