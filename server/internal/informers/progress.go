package informers

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

// Revisions has the revisions of the storage that informers read.
type Revisions interface {
	// Revision returns the revision of the last change, of any resource.
	Revision(ctx context.Context) (uint64, error)
	// Progress makes etcd report the current revision to the watches of the informers.
	Progress(ctx context.Context) error
	// Advance writes to the storage to create a newer revision. Resumed watches begin after the last revision that they have seen, and etcd
	// reports no progress to any watch of a stream before that revision exists.
	Advance(ctx context.Context) error
}

// unanswered is the number of requests for progress without a response after which Advance is called.
const unanswered = 2

// ProgressRequests are the requests for progress of one wait for informers. The zero value is ready to use.
type ProgressRequests struct {
	sent     int
	advanced bool
}

// Send sends the next request.
func (r *ProgressRequests) Send(ctx context.Context, source Revisions) error {
	if r.sent >= unanswered && !r.advanced {
		err := source.Advance(ctx)
		if r.advanced = err == nil; err != nil {
			klog.FromContext(ctx).V(2).Info("Advancing the revision of etcd failed", decisionlog.Error, err)
		}
	}
	r.sent++
	return source.Progress(ctx)
}
