package informers

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

const (
	// firstPause is the pause before a list that follows a watch, shortPause the longest one of errors that are expected, and longPause the
	// longest one.
	firstPause, shortPause, longPause = 20 * time.Millisecond, 100 * time.Millisecond, 5 * time.Second
	// expectedFor is how long errors are expected: lists are refused while a logical cluster arrives at this shard, or leaves it.
	expectedFor = time.Second
	// loggedEvery is the time between two log entries of errors that repeat.
	loggedEvery = 30 * time.Second
)

// Reflect lists and watches until ctx ends, as reflector.RunWithContext does. That waits longer from one list to the next, up to 30 s,
// whether they fail or not. But each migration of a logical cluster ends the watches of all clusters, and requests for that cluster wait
// until this process has listed again.
func Reflect(ctx context.Context, reflector *cache.Reflector) {
	var next retries
	for ctx.Err() == nil {
		began, version := time.Now(), reflector.LastSyncResourceVersion()
		err := reflector.ListAndWatchWithContext(ctx)
		pause, logged := next.after(began, time.Now(), reflector.LastSyncResourceVersion() != version, err)
		if logged && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Listing and watching failed, will retry", decisionlog.Name, reflector.Name())
		}
		select {
		case <-time.After(pause + rand.N(pause/4)):
		case <-ctx.Done():
		}
	}
}

// retries are the pauses of a reflector. The zero value is that of a new one.
type retries struct {
	pause           time.Duration // the last one
	failing, logged time.Time     // zero if it does not fail, and if that was not logged
}

// after returns the pause after a list and watch, and whether its error is logged. read reports whether anything was read. A watch that
// ends at once counts as an error, and one that has delivered changes for a while as none.
func (r *retries) after(began, ended time.Time, read bool, err error) (pause time.Duration, logged bool) {
	if (read || err == nil) && ended.Sub(began) > expectedFor {
		*r = retries{pause: firstPause}
		return r.pause, false
	}
	if r.failing.IsZero() {
		r.failing = ended
	}
	limit := shortPause
	if ended.Sub(r.failing) > expectedFor {
		limit = longPause
		if logged = err != nil && ended.Sub(r.logged) > loggedEvery; logged {
			r.logged = ended
		}
	}
	r.pause = min(max(2*r.pause, firstPause), limit)
	return r.pause, logged
}
