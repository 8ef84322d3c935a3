package scheduling

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/internal/informers"
)

// arrivalTimeout limits how long a request waits until the informers have the objects that it stored, so that the next
// request of the same client finds them.
const arrivalTimeout = 2 * time.Second

// arrivals lets requests wait until an informer has the objects that they stored.
type arrivals struct {
	informer *informers.Informer

	mu      sync.Mutex
	waiting map[informers.Key][]chan struct{}
}

func newArrivals(informer *informers.Informer) *arrivals {
	a := &arrivals{informer: informer, waiting: map[informers.Key][]chan struct{}{}}
	informer.AddHandler(func(_, obj runtime.Object) {
		if obj == nil {
			return
		}
		if key, err := informers.KeyOf(obj); err == nil {
			a.arrived(key)
		}
	})
	return a
}

func (a *arrivals) arrived(key informers.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.waiting[key] {
		close(c)
	}
	delete(a.waiting, key)
}

// expect must be called before the object is stored, and wait afterwards. wait returns when look-ups find the object, forget stops waiting.
func (a *arrivals) expect(key informers.Key) (wait func(context.Context), forget func()) {
	c := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[key] = append(a.waiting[key], c)
	forget = func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		left := slices.DeleteFunc(a.waiting[key], func(w chan struct{}) bool { return w == c })
		if a.waiting[key] = left; len(left) == 0 {
			delete(a.waiting, key)
		}
	}
	wait = func(ctx context.Context) {
		if !a.informer.IsFilled() {
			return
		}
		timeout := time.NewTimer(arrivalTimeout)
		defer timeout.Stop()
		select {
		case <-c:
		case <-timeout.C:
		case <-ctx.Done():
		}
	}
	return wait, forget
}
