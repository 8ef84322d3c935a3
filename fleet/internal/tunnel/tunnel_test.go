package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// listen returns tunnels, and a server at which agents open those of a cluster with the name in the path.
func listen(t *testing.T) (*Tunnels, *httptest.Server) {
	t.Helper()
	tunnels := &Tunnels{}
	ctx, cancel := context.WithCancel(context.Background())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnels.Serve(ctx, w, r, strings.TrimPrefix(r.URL.Path, "/"))
	}))
	t.Cleanup(server.Close)
	t.Cleanup(cancel)
	return tunnels, server
}

// connect runs an agent, and returns a function that stops it.
func connect(t *testing.T, server *httptest.Server, cluster string, handler http.HandlerFunc) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, &http.Transport{}, server.URL+"/"+cluster, handler) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// get requests a path from the agent of a cluster.
func get(t *testing.T, tunnels *Tunnels, cluster, path string) (string, error) {
	t.Helper()
	transport, err := tunnels.To(cluster)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: transport}).Get("http://cluster" + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return string(content), err
}

// await waits until a request to a cluster has a response.
func await(t *testing.T, tunnels *Tunnels, cluster, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got, err := get(t, tunnels, cluster, "/")
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s responds with %q: %v", cluster, got, err)
		}
	}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, text, r.URL.Path) }
}

func TestRequestsReachTheAgentOfTheirCluster(t *testing.T) {
	tunnels, server := listen(t)
	stop := connect(t, server, "east", says("east"))
	connect(t, server, "west", says("west"))
	await(t, tunnels, "east", "east/")
	await(t, tunnels, "west", "west/")
	if _, err := get(t, tunnels, "north", "/"); !errors.Is(err, ErrAway) {
		t.Errorf("a cluster without an agent: got %v", err)
	}
	if err := stop(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := get(t, tunnels, "east", "/"); errors.Is(err, ErrAway) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the connection of an agent that has ended is kept")
		}
	}
	await(t, tunnels, "west", "west/")
}

func TestTheLatestConnectionOfAClusterIsUsed(t *testing.T) {
	tunnels, server := listen(t)
	connect(t, server, "east", says("former"))
	await(t, tunnels, "east", "former/")
	connect(t, server, "east", says("latest"))
	await(t, tunnels, "east", "latest/")
}

func TestAStreamThatIsNotReadDoesNotHoldUpOthers(t *testing.T) {
	tunnels, server := listen(t)
	connect(t, server, "east", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/endless" {
			fmt.Fprint(w, "east")
			return
		}
		for page := make([]byte, 64<<10); r.Context().Err() == nil; {
			if _, err := w.Write(page); err != nil {
				return
			}
		}
	})
	await(t, tunnels, "east", "east")
	transport, err := tunnels.To("east")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		response, err := (&http.Client{Transport: transport}).Get("http://cluster/endless")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
	}
	for range 20 {
		await(t, tunnels, "east", "east")
	}
}

func TestAConnectionIsUpgradedThroughATunnel(t *testing.T) {
	tunnels, server := listen(t)
	connect(t, server, "east", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprint(w, "east")
			return
		}
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := buffer.ReadString('\n')
		fmt.Fprintf(conn, "you said %s", line)
	})
	await(t, tunnels, "east", "east")
	transport, err := tunnels.To("east")
	if err != nil {
		t.Fatal(err)
	}
	r, _ := http.NewRequest(http.MethodGet, "http://cluster/", nil)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	response, err := transport.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v: %v", response, err)
	}
	defer response.Body.Close()
	fmt.Fprintln(response.Body.(io.Writer), "hello")
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); line != "you said hello\n" {
		t.Errorf("got %q: %v", line, err)
	}
}

func TestAnAgentThatOpensStreamsIsDisconnected(t *testing.T) {
	_, server := listen(t)
	r, _ := http.NewRequest(http.MethodGet, server.URL+"/east", nil)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {Protocol}}
	response, err := (&http.Transport{}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	session, err := yamux.Server(response.Body.(io.ReadWriteCloser), config())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if stream, err := session.Open(); err == nil {
		_, _ = stream.Write([]byte("x"))
	}
	select {
	case <-session.CloseChan():
	case <-time.After(time.Minute):
		t.Error("the connection is still open")
	}
}

func TestOtherProtocolsOpenNoTunnel(t *testing.T) {
	tunnels, server := listen(t)
	r, _ := http.NewRequest(http.MethodGet, server.URL+"/east", nil)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	response, err := (&http.Transport{}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := tunnels.To("east"); response.StatusCode != http.StatusBadRequest || !errors.Is(err, ErrAway) {
		t.Errorf("got %d, %v", response.StatusCode, err)
	}
}

func TestAnAgentThatSendsBeforeTheResponseIsRefused(t *testing.T) {
	fleet, agent := net.Pipe()
	defer fleet.Close()
	defer agent.Close()
	early := bufio.NewReader(strings.NewReader("x"))
	if _, err := early.Peek(1); err != nil {
		t.Fatal(err)
	}
	if err := accept(fleet, bufio.NewReadWriter(early, nil)); err == nil {
		t.Error("the connection is accepted")
	}
}
