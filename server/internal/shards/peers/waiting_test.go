package peers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// begins calls begin a number of times at once. Each call sends its function to end it, or its error.
func begins(ctx context.Context, c *connecting, calls int) (begun chan func(error), failed chan error) {
	begun, failed = make(chan func(error), calls), make(chan error, calls)
	for range calls {
		go func() {
			if _, end, err := c.begin(ctx, "one"); err != nil {
				failed <- err
			} else {
				begun <- end
			}
		}()
	}
	synctest.Wait()
	return begun, failed
}

func newConnecting() *connecting {
	return &connecting{clock: clock.RealClock{}, states: map[string]*connection{}}
}

func TestACallTriesItselfWhenTheCallerThatOpensAConnectionGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnecting()
		for _, err := range []error{context.DeadlineExceeded, context.Canceled, errors.New("cut")} {
			ctx, cancel := context.WithCancel(t.Context())
			_, end, _ := c.begin(ctx, "one")
			begun, failed := begins(t.Context(), c, 3)
			cancel()
			end(err)
			synctest.Wait()
			if len(begun) != 1 || len(failed) != 0 {
				t.Fatalf("after %v, %d calls begin, and %d fail", err, len(begun), len(failed))
			}
			(<-begun)(nil)
			synctest.Wait()
			if len(begun) != 2 {
				t.Errorf("after %v, %d calls use the connection", err, len(begun))
			}
			(<-begun)(errors.New("closed")) // the next call opens another one
		}
	})
}

func TestAStuckAttemptDelaysOthersForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnecting()
		_, stuck, _ := c.begin(t.Context(), "one")
		begun, failed := begins(t.Context(), c, 3)
		for i := range 2 {
			time.Sleep(patience)
			synctest.Wait()
			if len(begun) != i+1 || len(failed) != 0 {
				t.Fatalf("after %d times the patience, %d calls begin, and %d fail", i+1, len(begun), len(failed))
			}
		}
		stuck(errors.New("stuck")) // does not end the attempts of others
		synctest.Wait()
		if len(begun) != 2 || len(failed) != 0 {
			t.Fatalf("%d calls begin, and %d fail", len(begun), len(failed))
		}
		<-begun
		(<-begun)(nil)
		synctest.Wait()
		if len(begun) != 1 {
			t.Error("a call does not use the connection of another one")
		}
	})
}

func TestCallsThatWereNotSentSayNothingAboutTheShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnecting()
		b := &breakers{clock: c.clock, states: map[string]*breaker{}}
		_, end, _ := c.begin(t.Context(), "one")
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		_, hurried := begins(ctx, c, 1)
		_, patient := begins(t.Context(), c, 1)
		time.Sleep(patience / 2)
		own := <-hurried
		end(errors.New("refused"))
		others := <-patient
		if !errors.Is(own, context.DeadlineExceeded) || others.Error() != "refused" {
			t.Errorf("the calls return %v and %v", own, others)
		}
		for _, err := range []error{own, others} {
			b.begin("one")
			if b.end("one", err); !b.closed("one") {
				t.Errorf("%v counts as a failure", err)
			}
		}
	})
}
