package customresources

import (
	"context"
	"sync"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// watches knows the watches in progress, to end those whose definition is replaced: they would go on to deliver objects
// as the old schema prunes and converts them. Clients then list and watch again, as after any broken connection.
type watches struct {
	mu      sync.Mutex
	ongoing map[watched]map[*context.CancelFunc]struct{}
}

// watched is a resource, by Key, of a cluster or of all clusters.
type watched struct {
	cluster logicalcluster.Cluster
	key     string
}

func newWatches() *watches {
	return &watches{ongoing: map[watched]map[*context.CancelFunc]struct{}{}}
}

// begin returns the context of a watch, and what must be called at its end. It comes before the definition is looked up,
// so that no replacement goes unnoticed.
func (w *watches) begin(ctx context.Context, target watched) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ongoing[target] == nil {
		w.ongoing[target] = map[*context.CancelFunc]struct{}{}
	}
	w.ongoing[target][&cancel] = struct{}{}
	return ctx, func() {
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.ongoing[target], &cancel)
		if len(w.ongoing[target]) == 0 {
			delete(w.ongoing, target)
		}
	}
}

// beginAll is begin for a watch that several things can end.
func (w *watches) beginAll(ctx context.Context, targets []watched) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	ends := []func(){cancel}
	for _, target := range targets {
		next, end := w.begin(ctx, target)
		ctx, ends = next, append(ends, end)
	}
	return ctx, func() {
		for _, end := range ends {
			end()
		}
	}
}

// end ends the watches of a resource.
func (w *watches) end(target watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for cancel := range w.ongoing[target] {
		(*cancel)()
	}
}
