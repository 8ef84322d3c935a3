package peers_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
)

type question struct{ Text string }
type answer struct{ Text, Caller string }

// start serves calls, and returns the URL of the server.
func start(t *testing.T, authority *peerstest.Authority, add func(*peers.Server)) *httptest.Server {
	t.Helper()
	s := peers.NewServer(authority, scheme.Codecs)
	add(s)
	user := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	server := httptest.NewUnstartedServer(s.WithCalls(user))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{authority.Certificate(t, "server")}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func clients(t *testing.T, server *httptest.Server, authority *peerstest.Authority, certificate tls.Certificate) *peers.Clients {
	t.Helper()
	c, err := peers.NewClients(peers.Config{
		TLS: authority.ClientConfig(t, certificate), Clock: testingclock.NewFakePassiveClock(time.Now()),
		URL: func(shard string) (string, bool) { return server.URL, shard == "one" },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func echo(s *peers.Server) {
	peers.Handle(s, "echo", []peers.Kind{peers.Shard}, func(_ context.Context, caller peers.Identity, in question) (answer, error) {
		if in.Text == "" {
			return answer{}, apierrors.NewConflict(schema.GroupResource{Resource: "questions"}, "none", errors.New("no text"))
		}
		return answer{Text: in.Text, Caller: caller.String()}, nil
	})
	s.HandleStream("numbers", []peers.Kind{peers.Shard, peers.Proxy}, func(w http.ResponseWriter, r *http.Request, _ peers.Identity) {
		_, _ = io.WriteString(w, r.URL.Query().Get("from"))
	})
}

func TestOnlyPeersOfAnAllowedKindCanMakeACall(t *testing.T) {
	authority, other := peerstest.NewAuthority(t), peerstest.NewAuthority(t)
	server := start(t, authority, echo)
	shard := peers.Identity{Kind: peers.Shard, Name: "two"}.String()
	for name, tc := range map[string]struct {
		certificate tls.Certificate
		want        func(error) bool
	}{
		"a shard":                   {authority.Peer(t, peers.Shard, "two"), func(err error) bool { return err == nil }},
		"a proxy":                   {authority.Peer(t, peers.Proxy, "front"), apierrors.IsForbidden},
		"another authority":         {other.Peer(t, peers.Shard, "two"), apierrors.IsUnauthorized},
		"no URI":                    {authority.Certificate(t, "two"), apierrors.IsUnauthorized},
		"two URIs":                  {authority.Certificate(t, "two", shard, "kcp://shard/root"), apierrors.IsUnauthorized},
		"another kind":              {authority.Certificate(t, "two", "kcp://admin/two"), apierrors.IsUnauthorized},
		"a name with a path":        {authority.Certificate(t, "two", "kcp://shard/two/three"), apierrors.IsUnauthorized},
		"no name":                   {authority.Certificate(t, "two", "kcp://shard"), apierrors.IsUnauthorized},
		"a name that needs escapes": {authority.Certificate(t, "two", "kcp://shard/t%77o"), apierrors.IsUnauthorized},
		"a query":                   {authority.Certificate(t, "two", shard+"?as=root"), apierrors.IsUnauthorized},
		"a shard of upstream": {authority.Signed(t, &x509.Certificate{
			Subject: pkix.Name{CommonName: "two", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}), apierrors.IsUnauthorized},
		"a certificate for servers": {authority.Signed(t, &x509.Certificate{
			Subject: pkix.Name{CommonName: "two"}, URIs: authority.Peer(t, peers.Shard, "two").Leaf.URIs,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}), apierrors.IsUnauthorized},
	} {
		got, err := peers.Call[question, answer](t.Context(), clients(t, server, authority, tc.certificate), "one", "echo", question{"hello"})
		if !tc.want(err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err == nil && got != (answer{"hello", shard}) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestACallReturnsTheStatusOfThePeer(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	c := clients(t, start(t, authority, echo), authority, authority.Peer(t, peers.Shard, "two"))
	if _, err := peers.Call[question, answer](t.Context(), c, "one", "echo", question{}); !apierrors.IsConflict(err) {
		t.Errorf("the call returned %v", err)
	}
	if _, err := peers.Call[question, answer](t.Context(), c, "one", "nothing", question{}); !apierrors.IsNotFound(err) {
		t.Errorf("an unknown call returned %v", err)
	}
	if _, err := peers.Call[question, answer](t.Context(), c, "one", "numbers", question{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a stream that is called returned %v", err)
	}
	if _, err := peers.Call[question, answer](t.Context(), c, "one", "echo", question{strings.Repeat("x", 5<<20)}); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("a large call returned %v", err)
	}
	if _, err := peers.Call[question, answer](t.Context(), c, "two", "echo", question{"x"}); !peers.IsUnreachable(err) || c.Answers("two") {
		t.Errorf("an unknown shard returned %v", err)
	}
	if !c.Answers("one") {
		t.Error("a shard that returns errors is taken for one that does not respond")
	}
}

func TestStreams(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	c := clients(t, start(t, authority, echo), authority, authority.Peer(t, peers.Proxy, "front"))
	stream, err := c.Stream(t.Context(), "one", "numbers", map[string][]string{"from": {"7"}})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if text, err := io.ReadAll(stream); err != nil || string(text) != "7" {
		t.Errorf("read %q, %v", text, err)
	}
}

func TestAPeerHasALimitedNumberOfCallsInProgress(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	entered, leave := make(chan struct{}, 300), make(chan struct{})
	server := start(t, authority, func(s *peers.Server) {
		peers.Handle(s, "wait", []peers.Kind{peers.Shard}, func(context.Context, peers.Identity, question) (answer, error) {
			entered <- struct{}{}
			<-leave
			return answer{}, nil
		})
		echo(s)
	})
	two, three := clients(t, server, authority, authority.Peer(t, peers.Shard, "two")), clients(t, server, authority, authority.Peer(t, peers.Shard, "three"))
	ended := make(chan error)
	const most = 256
	for range most {
		go func() {
			_, err := peers.Call[question, answer](t.Context(), two, "one", "wait", question{})
			ended <- err
		}()
	}
	for range most {
		<-entered
	}
	if _, err := peers.Call[question, answer](t.Context(), two, "one", "echo", question{"x"}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one call more returned %v", err)
	}
	if _, err := peers.Call[question, answer](t.Context(), three, "one", "echo", question{"x"}); err != nil {
		t.Errorf("a call of another shard returned %v", err)
	}
	close(leave)
	for range most {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if _, err := peers.Call[question, answer](t.Context(), two, "one", "echo", question{"x"}); err != nil {
		t.Errorf("a call after the others returned %v", err)
	}
}

func TestAShardThatDoesNotRespondIsNotCalledForAMoment(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	var calls atomic.Int32
	server := start(t, authority, echo)
	clock := testingclock.NewFakePassiveClock(time.Now())
	c, err := peers.NewClients(peers.Config{
		TLS: authority.ClientConfig(t, authority.Peer(t, peers.Shard, "two")), Clock: clock,
		URL: func(string) (string, bool) { calls.Add(1); return server.URL, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	call := func() error {
		_, err := peers.Call[question, answer](t.Context(), c, "one", "echo", question{"x"})
		return err
	}
	url := server.URL
	server.URL = "https://127.0.0.1:1"
	if err := call(); !peers.IsUnreachable(err) || c.Answers("one") {
		t.Fatalf("a refused connection returned %v", err)
	}
	server.URL = url
	if err := call(); !peers.IsUnreachable(err) {
		t.Errorf("the shard was called at once: %v", err)
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if !c.Answers("one") {
		t.Error("the shard is not tried again")
	}
	if err := call(); err != nil {
		t.Errorf("the shard that responds again returned %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := peers.Call[question, answer](ctx, c, "one", "echo", question{"x"}); !peers.IsUnreachable(err) || !c.Answers("one") {
		t.Errorf("a caller that gives up makes the shard look dead: %v", err)
	}
}

func TestUsersCannotSeeCallsOfPeers(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	server := start(t, authority, echo)
	for path, want := range map[string]int{
		"/services/peers/v1/echo": http.StatusUnauthorized, "/services/peers/v2/echo": http.StatusUnauthorized,
		"/services/peers/": http.StatusUnauthorized, "/services/apiexport/x": http.StatusTeapot, "/clusters/root": http.StatusTeapot,
	} {
		response, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}
