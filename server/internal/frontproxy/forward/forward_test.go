package forward

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// write writes a certificate and its key to files.
func write(t *testing.T, directory string, certificate tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

type installation struct {
	authority *peerstest.Authority
	via       *Connections
}

func install(t *testing.T) installation {
	t.Helper()
	authority := peerstest.NewAuthority(t)
	certFile, keyFile := write(t, t.TempDir(), authority.Peer(t, peers.Proxy, "front"))
	via, err := NewConnections(Credentials{CAFile: authority.File, CertFile: certFile, KeyFile: keyFile})
	if err != nil {
		t.Fatal(err)
	}
	return installation{authority, via}
}

// shard starts a shard.
func (i installation) shard(t *testing.T, name string, serve http.HandlerFunc) Target {
	t.Helper()
	server := httptest.NewUnstartedServer(serve)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{i.authority.Certificate(t, name)}}
	server.StartTLS()
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Target{Shard: name, Base: base, Path: "/clusters/c0/api", Expect: &tree.Expectation{Cluster: "c0", Epoch: 1}, Via: i.via}
}

func refuse(w http.ResponseWriter, m tree.Marker) {
	w.Header().Set(tree.PlacementHeader, m.String())
	w.WriteHeader(http.StatusMisdirectedRequest)
}

func post(t *testing.T, route *Route, body io.Reader) (*http.Response, error) {
	t.Helper()
	if route.Sent == nil {
		route.Sent = func(Target) {}
	}
	route.Marked = func(tree.Marker) {}
	r, err := http.NewRequestWithContext(WithRoute(t.Context(), route), http.MethodPost, "https://kcp.test/ignored?a=b;c", body)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil && r.ContentLength == 0 {
		r.ContentLength = -1 // as net/http says in the request that a server gets
	}
	return NewHops().RoundTrip(r)
}

func to(target Target) func(context.Context, Target, tree.Marker) (Target, error) {
	return func(context.Context, Target, tree.Marker) (Target, error) { return target, nil }
}

func TestARequestFollowsAMarkerWithItsBody(t *testing.T) {
	i := install(t)
	content := make([]byte, 300<<10)
	_, _ = rand.Read(content)
	for name, tc := range map[string]struct {
		size int
		body func([]byte) io.Reader
	}{
		"no body":                          {0, func([]byte) io.Reader { return nil }},
		"a small body":                     {10, func(b []byte) io.Reader { return bytes.NewReader(b) }},
		"a body that just fits":            {keptBody, func(b []byte) io.Reader { return bytes.NewReader(b) }},
		"a body of unknown length":         {20 << 10, func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b)) }},
		"a large body":                     {keptBody + 1, func(b []byte) io.Reader { return bytes.NewReader(b) }},
		"a larger body":                    {len(content), func(b []byte) io.Reader { return bytes.NewReader(b) }},
		"a large body of unknown length":   {len(content), func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b)) }},
		"a small body that arrives slowly": {200, func(b []byte) io.Reader { return slowly{bytes.NewReader(b)} }},
	} {
		var seen []string
		first := i.shard(t, "one", func(w http.ResponseWriter, r *http.Request) {
			seen = append(seen, r.Header.Get(tree.ExpectHeader))
			refuse(w, tree.Marker{Shard: "one", Incarnation: "x", Verdict: tree.Moved, To: "two", Epoch: 2})
		})
		second := i.shard(t, "two", func(w http.ResponseWriter, r *http.Request) {
			seen = append(seen, r.Header.Get(tree.ExpectHeader), r.URL.String())
			_, _ = io.Copy(w, r.Body)
		})
		second.Expect = &tree.Expectation{Cluster: "c0", Epoch: 2}
		response, err := post(t, &Route{Target: first, Next: to(second)}, tc.body(content[:tc.size]))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := io.ReadAll(response.Body)
		if err != nil || !bytes.Equal(got, content[:tc.size]) || response.ProtoMajor != 2 {
			t.Errorf("%s: %s, %d bytes, %v", name, response.Proto, len(got), err)
		}
		if want := []string{"c0;;1", "c0;;2", "/clusters/c0/api?a=b;c"}; fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Errorf("%s: the shards saw %q", name, seen)
		}
	}
}

// slowly reads one byte at a time.
type slowly struct{ io.Reader }

func (s slowly) Read(p []byte) (int, error) { return s.Reader.Read(p[:1]) }

func TestARequestFollowsTwoMarkersAtMost(t *testing.T) {
	i := install(t)
	var sent atomic.Int32
	target := i.shard(t, "one", func(w http.ResponseWriter, r *http.Request) {
		sent.Add(1)
		refuse(w, tree.Marker{Shard: "one", Incarnation: "x", Verdict: tree.Moved, To: "one", Epoch: 2})
	})
	_, err := post(t, &Route{Target: target, Next: to(target)}, nil)
	if delay, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !ok || delay == 0 || sent.Load() != 3 {
		t.Errorf("after %d attempts: %v", sent.Load(), err)
	}
}

func TestOnlyAMarkerOfTheShardItselfCounts(t *testing.T) {
	i := install(t)
	next := func(context.Context, Target, tree.Marker) (Target, error) { return Target{}, errors.New("followed") }
	marker := tree.Marker{Shard: "one", Incarnation: "x", Verdict: tree.Never}.String()
	for name, tc := range map[string]struct {
		status   int
		header   string
		expect   bool
		response bool
		followed bool
	}{
		"a marker":                              {421, marker, true, false, true},
		"another status":                        {403, marker, true, true, false},
		"without an expectation":                {421, marker, false, true, false},
		"without a header":                      {421, "", true, true, false},
		"another shard":                         {421, strings.Replace(marker, "one", "two", 1), true, false, false},
		"a header that is not understood":       {421, "x", true, false, false},
		"a response that the client should see": {200, marker, true, true, false},
	} {
		target := i.shard(t, "one", func(w http.ResponseWriter, r *http.Request) {
			if tc.header != "" {
				w.Header().Set(tree.PlacementHeader, tc.header)
			}
			w.WriteHeader(tc.status)
		})
		if !tc.expect {
			target.Expect = nil
		}
		response, err := post(t, &Route{Target: target, Next: next}, nil)
		if got := err != nil && err.Error() == "followed"; got != tc.followed || (err == nil) != tc.response {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (response.StatusCode != tc.status || response.Header.Get(tree.PlacementHeader) != "") {
			t.Errorf("%s: the client gets %s and %q", name, response.Status, response.Header)
		}
	}
}

func TestALargeBodyThatAShardHasReadIsNotSentAgain(t *testing.T) {
	i := install(t)
	first := i.shard(t, "one", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		refuse(w, tree.Marker{Shard: "one", Incarnation: "x", Verdict: tree.Moved, To: "two", Epoch: 2})
	})
	second := i.shard(t, "two", func(http.ResponseWriter, *http.Request) { t.Error("the second shard got a part of the body") })
	_, err := post(t, &Route{Target: first, Next: to(second)}, bytes.NewReader(make([]byte, 2*keptBody)))
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v", err)
	}
}

func TestOnlyARequestThatDidNotReachTheShardIsSentAgain(t *testing.T) {
	i := install(t)
	var executed, sent atomic.Int32
	broken := i.shard(t, "one", func(http.ResponseWriter, *http.Request) {
		executed.Add(1)
		panic(http.ErrAbortHandler)
	})
	count := func(Target) { sent.Add(1) }
	var unreachable *Unreachable
	if _, err := post(t, &Route{Target: broken, Sent: count}, strings.NewReader("x")); !errors.As(err, &unreachable) || executed.Load() != 1 || sent.Load() != 1 {
		t.Errorf("a request that may have been executed was sent %d times, executed %d times: %v", sent.Load(), executed.Load(), err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	gone := broken
	gone.Base = &url.URL{Scheme: "https", Host: listener.Addr().String()}
	sent.Store(0)
	if _, err := post(t, &Route{Target: gone, Sent: count}, strings.NewReader("x")); !errors.As(err, &unreachable) || sent.Load() != 2 {
		t.Errorf("a request that was refused was sent %d times: %v", sent.Load(), err)
	}
}

func TestOnlyProtocolsOfKubernetesAreUpgradedTo(t *testing.T) {
	for protocol, want := range map[string]bool{"websocket": true, "WebSocket": true, "SPDY/3.1": true, "h2c": false, "websocket, h2c": false, "": true} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if protocol != "" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", protocol)
		}
		if err := CheckUpgrade(r); (err == nil) != want {
			t.Errorf("%q: %v", protocol, err)
		}
	}
}

func TestCertificatesAreReadAgainWhenTheyChange(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	directory := t.TempDir()
	certFile, keyFile := write(t, directory, authority.Peer(t, peers.Proxy, "before"))
	via, err := NewConnections(Credentials{CAFile: authority.File, CertFile: certFile, KeyFile: keyFile})
	if err != nil {
		t.Fatal(err)
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	target := installation{authority, via}.shard(t, "one", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			close(entered)
			<-leave
		}
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	})
	waiting := target
	waiting.Path = "/wait"
	open, err := post(t, &Route{Target: waiting}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	if changed, err := via.Reload(); changed || err != nil {
		t.Errorf("unchanged files: %t, %v", changed, err)
	}
	write(t, directory, authority.Peer(t, peers.Proxy, "after"))
	if changed, err := via.Reload(); !changed || err != nil {
		t.Errorf("changed files: %t, %v", changed, err)
	}
	answer := func(response *http.Response, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := answer(post(t, &Route{Target: target}, nil)); got != "after" {
		t.Errorf("a new request has the certificate of %s", got)
	}
	close(leave)
	if got := answer(open, nil); got != "before" {
		t.Errorf("the open request got %q", got)
	}
	if err := os.WriteFile(certFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := via.Reload(); changed || err == nil {
		t.Errorf("broken files: %t, %v", changed, err)
	}
	if got := answer(post(t, &Route{Target: target}, nil)); got != "after" {
		t.Errorf("after an error, a request has the certificate of %s", got)
	}
}
