package runner

import (
	"sync"

	"github.com/kcplane/kcp/server/internal/informers"
)

// Waiting holds keys that wait for changes which are not mapped to them, such as a change in another logical cluster.
type Waiting struct {
	controller *Controller

	mu   sync.Mutex
	keys map[informers.Key]bool
}

// NewWaiting returns an empty set of keys of c.
func NewWaiting(c *Controller) *Waiting {
	return &Waiting{controller: c, keys: map[informers.Key]bool{}}
}

// Add adds a key until the next Retry.
func (w *Waiting) Add(key informers.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[key] = true
}

// Retry reconciles all keys that wait, and removes them.
func (w *Waiting) Retry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.keys {
		w.controller.Enqueue(key)
	}
	clear(w.keys)
}
