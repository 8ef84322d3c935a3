package cacheserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// maxBody is the maximum size of a body.
	maxBody = 3 << 20
	// maxRequests is the maximum number of requests of one caller in progress, without watches.
	maxRequests = 64
	// maxWatches is the maximum number of watches of one caller. A shard watches each kind, and each cached resource that it uses.
	maxWatches = 1000
	// maxLists is the maximum number of lists of all callers that are read at a time. Others wait for listPatience.
	maxLists, listPatience = 16, 5 * time.Second
)

// limits bounds what callers have in progress. What exceeds a limit is answered with 429: clients retry it.
type limits struct {
	requests, watches int
	lists             chan struct{}
	patience          time.Duration

	mu      sync.Mutex
	running map[load]int
}

// load counts what a caller has in progress.
type load struct {
	caller string
	watch  bool
}

func newLimits() *limits {
	return &limits{requests: maxRequests, watches: maxWatches, lists: make(chan struct{}, maxLists), patience: listPatience,
		running: map[load]int{}}
}

// begin counts a request of a caller until end is called.
func (l *limits) begin(caller string, watch bool) (end func(), err error) {
	key, limit, what := load{caller, watch}, l.requests, "requests"
	if watch {
		limit, what = l.watches, "watches"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[key] >= limit {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%s has %d %s in progress, which is the limit", caller, limit, what), 1)
	}
	l.running[key]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.running[key]--; l.running[key] == 0 {
			delete(l.running, key)
		}
	}, nil
}

// beginList waits until a list may be read, which end ends.
func (l *limits) beginList(ctx context.Context) (end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	select {
	case l.lists <- struct{}{}:
		return func() { <-l.lists }, nil
	case <-ctx.Done():
		return nil, apierrors.NewTooManyRequests("the cache server reads as many lists as it can", 1)
	}
}
