package apibinding

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/informers"
)

// refusalTimeout is how long finalizers block the deletion of an object while the API refuses to remove them.
const refusalTimeout = time.Hour

// refusals has the times since when the API refuses to remove finalizers from objects of resources whose binding is being deleted. Without
// a timeout, a policy, a webhook, a conversion or a schema of the provider could prevent the deletion of a workspace forever.
type refusals struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	since map[informers.Key]map[schema.GroupResource]time.Time // by binding
}

func newRefusals(c clock.PassiveClock) *refusals {
	return &refusals{clock: c, since: map[informers.Key]map[schema.GroupResource]time.Time{}}
}

// blocks returns a function that reports, in one pass over the objects of a resource, whether the finalizers of an object block its
// deletion. remove tries to remove them. After one object that is blocked the others are blocked without a try, which keeps the number of
// tries low.
func (r *refusals) blocks(binding informers.Key, resource schema.GroupResource,
	remove func(*unstructured.Unstructured) error) func(*unstructured.Unstructured) bool {
	waiting := false
	return func(u *unstructured.Unstructured) bool {
		waiting = waiting || u.GetDeletionTimestamp() == nil || !r.overdue(binding, resource, remove(u))
		return waiting
	}
}

// overdue records whether finalizers can be removed, and reports whether that has failed for the timeout.
func (r *refusals) overdue(binding informers.Key, resource schema.GroupResource, problem error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if problem != nil && isTemporary(problem) {
		return false
	}
	if problem == nil || apierrors.IsNotFound(problem) {
		delete(r.since[binding], resource)
		return false
	}
	since, ok := r.since[binding][resource]
	if !ok {
		if r.since[binding] == nil {
			r.since[binding] = map[schema.GroupResource]time.Time{}
		}
		since = r.clock.Now()
		r.since[binding][resource] = since
	}
	return r.clock.Since(since) >= refusalTimeout
}

// isTemporary reports whether an error is independent of the object: the server had no time for the request.
func isTemporary(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err)
}

// until returns the time from which the finalizers of a resource are ignored, and zero if they can be removed.
func (r *refusals) until(binding informers.Key, resource schema.GroupResource) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since, ok := r.since[binding][resource]; ok {
		return since.Add(refusalTimeout)
	}
	return time.Time{}
}

func (r *refusals) forget(binding informers.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.since, binding)
}

// tryRemoveFinalizers removes the finalizers of an object in a dry run.
func (r *reconciler) tryRemoveFinalizers(ctx context.Context, resource schema.GroupVersionResource, u *unstructured.Unstructured) error {
	_, err := r.Metadata.Resource(resource).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
