// Package coalesce lets requests with the same question share its answer, without answers that are older than a request.
package coalesce

import "sync"

// Group lets concurrent callers with the same key share the work.
//
// Invariants:
//   - A caller gets a negative result only from work that has begun after the call. A positive one may be from work that was in progress.
//   - At most one piece of work for a key is in progress, and one is waiting. The work does not end with its callers.
//   - Without callers, nothing is kept.
type Group[K comparable, V any] struct {
	// positive reports whether a result is good for callers that came later than the work has begun.
	positive func(V, error) bool

	mu   sync.Mutex
	work map[K]*pair[V]
}

type pair[V any] struct{ running, waiting *Result[V] }

// Result is what the work returns. Value and Err may be read when Done is closed.
type Result[V any] struct {
	Done  chan struct{}
	Value V
	Err   error
}

// New returns a group. positive may be nil: then no result is.
func New[K comparable, V any](positive func(V, error) bool) *Group[K, V] {
	if positive == nil {
		positive = func(V, error) bool { return false }
	}
	return &Group[K, V]{positive: positive, work: map[K]*pair[V]{}}
}

// Join returns a result that is complete when Done is closed. f is called in another goroutine, unless that of another caller suffices.
func (g *Group[K, V]) Join(key K, f func() (V, error)) *Result[V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.work[key]; ok {
		if p.waiting == nil {
			p.waiting = &Result[V]{Done: make(chan struct{})}
		}
		return p.waiting
	}
	p := &pair[V]{running: &Result[V]{Done: make(chan struct{})}}
	g.work[key] = p
	first := p.running
	go g.run(key, p, f)
	return first
}

func (g *Group[K, V]) run(key K, p *pair[V], f func() (V, error)) {
	for {
		value, err := f()
		g.mu.Lock()
		finish := func(r *Result[V]) {
			r.Value, r.Err = value, err
			close(r.Done)
		}
		finish(p.running)
		if p.waiting != nil && g.positive(value, err) {
			finish(p.waiting)
			p.waiting = nil
		}
		if p.running, p.waiting = p.waiting, nil; p.running == nil {
			delete(g.work, key)
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
	}
}
