package tree

import (
	"context"
	"errors"
	"io"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// shardStand answers each connection with the next script, and records the tokens.
type shardStand struct {
	scripts [][]byte
	hang    bool // after the last script
	tokens  []string
}

func (s *shardStand) Stream(ctx context.Context, _, _ string, query url.Values) (io.ReadCloser, error) {
	s.tokens = append(s.tokens, query.Get("token"))
	if len(s.scripts) == 0 {
		return nil, errors.New("connection refused")
	}
	script := s.scripts[0]
	s.scripts = s.scripts[1:]
	r, w := io.Pipe()
	go func() {
		_ = writeFrame(w, append(make([]byte, headerSize), script...))
		if len(s.scripts) == 0 && s.hang {
			<-ctx.Done()
		}
		_ = w.Close()
	}()
	return r, nil
}

// connectAll makes f connect until the scripts are used, and returns the errors.
func connectAll(f *follower, stand *shardStand) (errs []error) {
	f.streams, f.clock = stand, clocktesting.NewFakeClock(time.Now())
	for len(stand.scripts) > 0 {
		errs = append(errs, f.connect(context.Background()))
	}
	return errs
}

func snapshotScript(h hello, m mark) []byte {
	h.Snapshot = true
	return appendMark(appendEdge(greeting(h), someEdges[0]), tagEnd, m)
}

func TestAStreamResumesAfterItsLastChange(t *testing.T) {
	first := appendMark(appendEdge(snapshotScript(hello{Log: 5}, mark{3, 10}), someEdges[1]), tagBookmark, mark{4, 12})
	first = appendEdge(first, someEdges[2])
	second := appendMark(greeting(hello{Log: 5, Position: 5, Start: Start{Revision: 12}}), tagBookmark, mark{5, 13})
	sink := &recorder{}
	stand := &shardStand{scripts: [][]byte{first, second}}
	f := &follower{shard: "eu", sink: sink}
	for _, err := range connectAll(f, stand) {
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
	if want := []string{"", "a.12.5.5"}; strings.Join(stand.tokens, " ") != strings.Join(want, " ") {
		t.Errorf("got tokens %q, want %q", stand.tokens, want)
	}
	if last := sink.events[len(sink.events)-1]; last != "bookmark 13" {
		t.Errorf("the last event is %s", last)
	}
}

func TestWhatGoesBackwardsOrBelongsElsewhereIsRefused(t *testing.T) {
	complete := snapshotScript(hello{Log: 5, Start: Start{Revision: 10}}, mark{3, 10})
	for name, c := range map[string]struct {
		script []byte
		want   string // empty for a script that is accepted
	}{
		"an older snapshot":              {snapshotScript(hello{Log: 6, Start: Start{Revision: 9}}, mark{1, 9}), "goes backwards"},
		"a newer snapshot":               {snapshotScript(hello{Log: 6, Start: Start{Revision: 11}}, mark{1, 11}), ""},
		"another incarnation":            {snapshotScript(hello{Start: Start{Incarnation: "b", Revision: 1}}, mark{1, 1}), ""},
		"an end before its beginning":    {snapshotScript(hello{Start: Start{Revision: 12}}, mark{1, 11}), "goes backwards"},
		"a bookmark that falls":          {appendMark(greeting(hello{Log: 5, Position: 3, Start: Start{Revision: 10}}), tagBookmark, mark{3, 9}), "goes backwards"},
		"another shard":                  {snapshotScript(hello{Start: Start{Shard: "us", Revision: 12}}, mark{1, 12}), `that of shard "us"`},
		"another position":               {greeting(hello{Log: 5, Position: 4, Start: Start{Revision: 10}}), "another place"},
		"another log":                    {greeting(hello{Log: 6, Position: 3, Start: Start{Revision: 10}}), "another place"},
		"a missing change":               {appendMark(greeting(hello{Log: 5, Position: 3, Start: Start{Revision: 10}}), tagBookmark, mark{4, 10}), "expected format"},
		"two greetings":                  {append(snapshotScript(hello{Start: Start{Revision: 12}}, mark{1, 12}), greeting(hello{})...), "expected format"},
		"no greeting":                    {appendEdge(nil, someEdges[0]), "expected format"},
		"an end without a snapshot":      {appendMark(greeting(hello{Log: 5, Position: 3, Start: Start{Revision: 10}}), tagEnd, mark{3, 10}), "expected format"},
		"another version of the format":  {append([]byte{tagHello, version + 1}, greeting(hello{})[2:]...), "version 2"},
		"a resumption without knowledge": {greeting(hello{Start: Start{Incarnation: "b"}}), "another place"},
	} {
		f := &follower{shard: "eu", sink: &recorder{}}
		errs := connectAll(f, &shardStand{scripts: [][]byte{complete, c.script}})
		if err := errs[1]; c.want == "" && !errors.Is(err, io.EOF) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestAnInterruptedSnapshotBeginsAgain(t *testing.T) {
	half := appendEdge(greeting(hello{Snapshot: true, Start: Start{Revision: 10}}), someEdges[0])
	stand := &shardStand{scripts: [][]byte{snapshotScript(hello{}, mark{3, 10}), half, half}}
	connectAll(&follower{shard: "eu", sink: &recorder{}}, stand)
	if want := ",a.10.0.3,"; strings.Join(stand.tokens, ",") != want {
		t.Errorf("got tokens %q, want %q", strings.Join(stand.tokens, ","), want)
	}
}

func TestAnErrorOfTheSinkLeadsToASnapshot(t *testing.T) {
	full := errors.New("the index is full")
	sink := &recorder{err: full}
	stand := &shardStand{scripts: [][]byte{snapshotScript(hello{}, mark{3, 10}), snapshotScript(hello{}, mark{3, 10})}}
	if errs := connectAll(&follower{shard: "eu", sink: sink}, stand); !errors.Is(errs[0], full) || stand.tokens[1] != "" {
		t.Errorf("got %v and tokens %q", errs, stand.tokens)
	}
}

func TestASilentShardIsLeft(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	sink := &recorder{signal: make(chan string, 10)}
	f := &follower{shard: "eu", sink: sink, clock: clock, streams: &shardStand{scripts: [][]byte{snapshotScript(hello{}, mark{3, 10})}, hang: true}}
	ended := make(chan error)
	go func() { ended <- f.connect(context.Background()) }()
	for event := range sink.signal {
		if event == "end" {
			break
		}
	}
	clock.Step(idleTimeout)
	if err := <-ended; !errors.Is(err, errSilent) {
		t.Errorf("got %v", err)
	}
}

func TestFollowWaitsBetweenConnectionsAndStops(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	sink := &recorder{signal: make(chan string)}
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{shard: "eu", sink: sink, clock: clock, streams: &shardStand{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.run(ctx)
	}()
	for range 3 {
		if lost := <-sink.signal; lost != "lost: following the tree of shard eu: connection refused" {
			t.Errorf("got %s", lost)
		}
		for !clock.HasWaiters() {
			runtime.Gosched() // until it waits
		}
		select {
		case <-sink.signal:
			t.Error("it connects without a delay")
		default:
		}
		clock.Step(maxDelay)
	}
	cancel()
	for {
		select {
		case <-sink.signal:
		case <-ended:
			return
		}
	}
}

func TestADelayIsNeverLongerThanItsMaximum(t *testing.T) {
	delay := newDelay()
	for range 50 {
		if d := delay.Step(); d > maxDelay {
			t.Fatalf("got %s", d)
		}
	}
}
