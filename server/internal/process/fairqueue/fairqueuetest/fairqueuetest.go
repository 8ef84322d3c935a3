// Package fairqueuetest tests that requests give their seats back while they wait.
package fairqueuetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
)

// WhileOthersWait calls f with the context of a request that has the only seat. When f waits, a request of another account wants a seat:
// until then, no other account is active. seated is closed when the other request gets the seat. The test fails if f returns before that,
// or if time passes until then: time is that of a synctest bubble, in which it passes only while all goroutines wait, and the queue gives
// every request a seat after some time.
func WhileOthersWait(t *testing.T, f func(ctx context.Context, seated <-chan struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := fairqueue.New(fairqueue.Config{Seats: 1, Patience: time.Hour, Place: func(h fairqueue.Holder) fairqueue.Place {
			return fairqueue.Place{Account: h.Cluster, Unit: h.Cluster, Owner: h.Cluster}
		}})
		first, seated := &fairqueue.Ticket{}, make(chan struct{})
		if err := q.Enter(t.Context(), fairqueue.Holder{Cluster: "first"}, fairqueue.Write, first); err != nil {
			t.Fatal(err)
		}
		defer first.Leave()
		go func() {
			time.Sleep(time.Nanosecond) // until f waits
			began := time.Now()
			other := &fairqueue.Ticket{}
			if err := q.Enter(t.Context(), fairqueue.Holder{Cluster: "other"}, fairqueue.Write, other); err != nil {
				t.Error(err)
				return
			}
			if waited := time.Since(began); waited > 0 {
				t.Errorf("the other request got the seat after %s", waited)
			}
			close(seated)
			other.Leave()
		}()
		f(context.WithValue(t.Context(), fairqueue.Key, first), seated)
		select {
		case <-seated:
		default:
			t.Error("the request keeps its seat while it waits")
		}
	})
}
