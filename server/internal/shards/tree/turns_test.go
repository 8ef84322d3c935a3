package tree

import (
	"context"
	"errors"
	"io"
	"net/url"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// opening opens streams when the test says so.
type opening struct {
	began chan string
	open  chan struct{}
}

func (o *opening) Stream(ctx context.Context, shard, _ string, _ url.Values) (io.ReadCloser, error) {
	o.began <- shard
	select {
	case <-o.open:
		reader, _ := io.Pipe() // silent
		return reader, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// follow follows a shard until the test ends.
func (o *opening) follow(t *testing.T, turns Turns, clock *testclock.FakeClock, shard string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&follower{streams: o, turns: turns, shard: shard, sink: &recorder{signal: nil}, clock: clock}).run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func TestStreamsAreOpenedInTurn(t *testing.T) {
	for name, next := range map[string]func(*opening, *testclock.FakeClock){
		"the first one is open":              func(o *opening, _ *testclock.FakeClock) { o.open <- struct{}{} },
		"the first shard does not respond":   func(_ *opening, c *testclock.FakeClock) { c.Step(turnPatience) },
		"the first one is open, and time on": func(o *opening, c *testclock.FakeClock) { o.open <- struct{}{}; c.Step(turnPatience) },
	} {
		t.Run(name, func(t *testing.T) {
			o, clock, turns := &opening{began: make(chan string), open: make(chan struct{})}, testclock.NewFakeClock(time.Now()), make(Turns, 1)
			o.follow(t, turns, clock, "one")
			if shard := <-o.began; shard != "one" {
				t.Fatal(shard)
			}
			o.follow(t, turns, clock, "two")
			select {
			case shard := <-o.began:
				t.Fatalf("the stream of %s is opened while the other one is", shard)
			case <-time.After(20 * time.Millisecond):
			}
			next(o, clock)
			if shard := <-o.began; shard != "two" {
				t.Errorf("the next stream is that of %s", shard)
			}
			if n := len(turns); n != 1 {
				t.Errorf("%d streams are being opened", n)
			}
		})
	}
}

func TestWaitingForATurnEndsWithTheContext(t *testing.T) {
	turns := make(Turns, 1)
	turns <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.take(ctx, testclock.NewFakeClock(time.Now())); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
