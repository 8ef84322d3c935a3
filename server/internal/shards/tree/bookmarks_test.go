package tree

import (
	"context"
	"io"
	"net/url"
	"testing"
	"time"
)

func TestTheTimeBetweenBookmarksIsBounded(t *testing.T) {
	for shards, want := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 100: time.Second, 300: 3 * time.Second, 1000: 5 * time.Second, 1 << 30: 5 * time.Second,
	} {
		if got := BookmarkInterval(shards); got != want {
			t.Errorf("%d shards: got %s, want %s", shards, got, want)
		}
	}
	for requested, want := range map[string]time.Duration{
		"": time.Second, "0s": time.Second, "-1h": time.Second, "wrong": time.Second, "2s": 2 * time.Second, "1h": 5 * time.Second,
	} {
		if got := bookmarksOf(url.Values{BookmarksParameter: {requested}}); got != want {
			t.Errorf("%q: got %s, want %s", requested, got, want)
		}
	}
}

// seldom is a client that requests few bookmarks.
type seldom struct{ *stand }

func (s seldom) Stream(ctx context.Context, shard, call string, query url.Values) (io.ReadCloser, error) {
	query.Set(BookmarksParameter, "3s")
	return s.stand.Stream(ctx, shard, call, query)
}

func TestBookmarksArriveAsOftenAsRequested(t *testing.T) {
	st := newStand(t)
	c := st.followWith(seldom{st})
	c.until(t, "bookmark")
	st.clock.Step(2 * time.Second)
	select {
	case event := <-c.events:
		t.Errorf("got %s after two seconds", event)
	case <-time.After(20 * time.Millisecond):
	}
	st.clock.Step(time.Second)
	if got := c.until(t, "bookmark"); len(got) != 1 {
		t.Errorf("got %q after three seconds", got)
	}
}
