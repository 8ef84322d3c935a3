package tree

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// openedAtOnce is how many streams are opened at the same time.
	openedAtOnce = 16
	// turnPatience is how long a stream that is being opened keeps others waiting: a shard that does not respond delays the others little.
	turnPatience = time.Second
)

// Turns limits the streams that are being opened at the same time. A front proxy that starts with a thousand shards would make all TLS
// handshakes at once otherwise, and on two processors none of them ends before its timeout. nil sets no limit.
type Turns chan struct{}

// NewTurns returns turns for the streams of one front proxy.
func NewTurns() Turns { return make(Turns, openedAtOnce) }

// take waits until a stream may be opened. The turn ends with release, at the latest after turnPatience.
func (t Turns) take(ctx context.Context, c clock.WithDelayedExecution) (release func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	end := sync.OnceFunc(func() { <-t })
	late := c.AfterFunc(turnPatience, end)
	return func() {
		late.Stop()
		end()
	}, nil
}
