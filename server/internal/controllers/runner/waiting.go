package runner

import (
	"sync"

	"github.com/kcplane/kcp/server/internal/informers"
)

// Waiting are the keys that wait for something of which no event of their own tells.
type Waiting struct {
	controller *Controller

	mu   sync.Mutex
	keys map[informers.Key]bool
}

// NewWaiting returns the keys of c that wait: none.
func NewWaiting(c *Controller) *Waiting {
	return &Waiting{controller: c, keys: map[informers.Key]bool{}}
}

// Add makes a key wait.
func (w *Waiting) Add(key informers.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys[key] = true
}

// Retry reconciles all that wait.
func (w *Waiting) Retry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.keys {
		w.controller.Enqueue(key)
	}
	clear(w.keys)
}
