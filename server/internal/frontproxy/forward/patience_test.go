package forward

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// leaving is a request whose client leaves.
type leaving struct {
	began, ended chan struct{} // at the shard
	leave        context.CancelFunc
	result       chan error
}

// leaving starts a request, and returns when the shard serves it. The shard calls serve in between.
func (i installation) leaving(t *testing.T, h Hops, serve func(http.ResponseWriter, *http.Request)) *leaving {
	t.Helper()
	l := &leaving{began: make(chan struct{}), ended: make(chan struct{}), result: make(chan error, 1)}
	target := i.shard(t, "one", func(w http.ResponseWriter, r *http.Request) {
		close(l.began)
		serve(w, r)
		close(l.ended)
	})
	ctx, leave := context.WithCancel(t.Context())
	l.leave = leave
	t.Cleanup(leave)
	route := &Route{Target: target, Sent: func(Target) {}, Marked: func(tree.Marker) {}}
	r, err := http.NewRequestWithContext(WithRoute(ctx, route), http.MethodGet, "https://kcp.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		response, err := h.RoundTrip(r)
		if err == nil {
			t.Cleanup(func() { _ = response.Body.Close() })
		}
		l.result <- err
	}()
	<-l.began
	return l
}

// The server of a shard closes a connection, which all users share, if a client cancels many requests before they are answered.
func TestAShardAnswersARequestWhoseClientHasLeft(t *testing.T) {
	answer := make(chan struct{})
	l := install(t).leaving(t, NewHops(), func(http.ResponseWriter, *http.Request) { <-answer })
	l.leave()
	select {
	case err := <-l.result:
		t.Errorf("the request ended before its response: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(answer)
	if err := <-l.result; err != nil {
		t.Error(err)
	}
}

func TestARequestEndsWhenTheShardIsSilentAndTheClientHasLeft(t *testing.T) {
	l := install(t).leaving(t, Hops{patience: time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	l.leave()
	if err := <-l.result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-l.ended
}

func TestAWatchEndsWhenItsClientLeaves(t *testing.T) {
	l := install(t).leaving(t, NewHops(), func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	if err := <-l.result; err != nil {
		t.Fatal(err)
	}
	l.leave()
	<-l.ended
}
