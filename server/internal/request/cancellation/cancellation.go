// Package cancellation ends active requests, especially watches, when something that they depend on changes.
package cancellation

import (
	"context"
	"sync"
)

// Requests are the active requests by their dependencies. Dependencies without active requests take no memory. The zero value is ready for
// use.
type Requests[K comparable] struct {
	mu   sync.Mutex
	ends map[K]map[*context.CancelFunc]struct{}
}

// Begin returns the context of a request, which ends when any of its dependencies changes, and a function that the caller must call when
// the request has ended. Call it before looking up the dependencies, to miss no change.
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

// End ends the requests that depend on a key.
func (r *Requests[K]) End(on K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for cancel := range r.ends[on] {
		(*cancel)()
	}
}

// Len returns the number of keys with active requests.
func (r *Requests[K]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ends)
}
