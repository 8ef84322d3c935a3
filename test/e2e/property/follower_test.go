package property

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"
)

// follower watches a kind in a whole tenant, from before the first operation until after the last one.
type follower struct {
	stream *stream
	news   chan struct{} // signals that more events have arrived

	mu     sync.Mutex
	events []event
	err    error
}

// follow starts to watch. The follower ends when its stream is closed.
func follow(ctx context.Context, c *client, t *tenant, k *kind) (*follower, error) {
	s, err := c.watch(ctx, t, k, "", url.Values{"allowWatchBookmarks": {"true"}}, t.robot)
	if err != nil {
		return nil, err
	}
	f := &follower{stream: s, news: make(chan struct{}, 1)}
	go f.read()
	return f, nil
}

func (f *follower) read() {
	for {
		e, _, err := f.stream.next()
		f.mu.Lock()
		if err != nil {
			f.err = err
		} else if e.event != bookmark {
			f.events = append(f.events, e)
		}
		f.mu.Unlock()
		select {
		case f.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// until returns all events when the last one has arrived.
func (f *follower) until(ctx context.Context, last id, version string, patience time.Duration) ([]event, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		f.mu.Lock()
		events, err := f.events, f.err
		f.mu.Unlock()
		if n := len(events); n > 0 && events[n-1].id == last && events[n-1].state.version == version {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-f.news:
		case <-ctx.Done():
			return nil, fmt.Errorf("the watch has not delivered %s at %s", last, version)
		}
	}
}

// check compares all events with all operations of the tenant's actors.
func (f *follower) check(ctx context.Context, c *client) error {
	k, t := f.stream.kind, f.stream.tenant
	last := t.actors[0]
	if k.namespaced {
		last = t.actors[1]
	}
	last.client = c
	final, version, err := last.sentinel(ctx, k, selector{})
	if err != nil {
		return err
	}
	got, err := f.until(ctx, final, version, last.patience)
	if err != nil {
		return err
	}
	var want []change
	for _, a := range t.actors {
		want = append(want, a.model.since(0, k, selector{})...)
	}
	return compareEvents(want, got)
}
