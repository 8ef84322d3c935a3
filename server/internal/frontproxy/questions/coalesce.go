package questions

import "sync"

// group lets concurrent callers with the same key share the work.
//
// Invariants:
//   - A caller gets a negative result only from work that has begun after the call. A positive one may be from work that was in progress.
//   - At most one piece of work for a key is in progress, and one is waiting.
type group[K comparable, V any] struct {
	// positive reports whether a result is good for callers that came later than the work has begun.
	positive func(V, error) bool

	mu   sync.Mutex
	work map[K]*pair[V]
}

type pair[V any] struct{ running, waiting *result[V] }

type result[V any] struct {
	done  chan struct{}
	value V
	err   error
}

func newGroup[K comparable, V any](positive func(V, error) bool) *group[K, V] {
	return &group[K, V]{positive: positive, work: map[K]*pair[V]{}}
}

// join returns a result that is complete when done is closed. f is called in another goroutine, unless that of another caller suffices.
func (g *group[K, V]) join(key K, f func() (V, error)) *result[V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.work[key]; ok {
		if p.waiting == nil {
			p.waiting = &result[V]{done: make(chan struct{})}
		}
		return p.waiting
	}
	p := &pair[V]{running: &result[V]{done: make(chan struct{})}}
	g.work[key] = p
	first := p.running
	go g.run(key, p, f)
	return first
}

func (g *group[K, V]) run(key K, p *pair[V], f func() (V, error)) {
	for {
		value, err := f()
		g.mu.Lock()
		finish := func(r *result[V]) {
			r.value, r.err = value, err
			close(r.done)
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
