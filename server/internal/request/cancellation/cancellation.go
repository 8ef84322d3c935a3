// Package cancellation ends requests that are under way, watches above all, when what they depend on is not what it was when
// they began.
package cancellation

import (
	"context"
	"sync"
)

// Requests are those that are under way, by what they depend on. It remembers nothing that no request depends on. The zero
// value is ready for use.
type Requests[K comparable] struct {
	mu   sync.Mutex
	ends map[K]map[*context.CancelFunc]struct{}
}

// Begin returns the context of a request, which ends with any of the things that the request depends on, and what must be
// called when the request has ended. It comes before these are looked up, so that no change goes unnoticed.
func (r *Requests[K]) Begin(ctx context.Context, on ...K) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends == nil {
		r.ends = map[K]map[*context.CancelFunc]struct{}{}
	}
	for _, k := range on {
		if r.ends[k] == nil {
			r.ends[k] = map[*context.CancelFunc]struct{}{}
		}
		r.ends[k][&cancel] = struct{}{}
	}
	return ctx, func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, k := range on {
			delete(r.ends[k], &cancel)
			if len(r.ends[k]) == 0 {
				delete(r.ends, k)
			}
		}
	}
}

// End ends the requests that depend on something.
func (r *Requests[K]) End(on K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for cancel := range r.ends[on] {
		(*cancel)()
	}
}

// Len returns on how many things requests depend just now.
func (r *Requests[K]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ends)
}
