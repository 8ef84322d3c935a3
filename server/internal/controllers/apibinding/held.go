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

// heldPatience is for how long finalizers hold an object although the API refuses to remove them.
const heldPatience = time.Hour

// held knows since when the API refuses to remove finalizers from objects of a resource whose binding is being deleted. Without an end, a
// policy, a webhook, a conversion or a schema of the provider would keep a workspace for good.
type held struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	since map[informers.Key]map[schema.GroupResource]time.Time // by binding
}

func newHeld(c clock.PassiveClock) *held {
	return &held{clock: c, since: map[informers.Key]map[schema.GroupResource]time.Time{}}
}

// waits returns what decides in one pass over the objects of a resource whether an object waits for its finalizers. remove tries whether
// they can be removed. One object that waits is enough for the others to wait, so that few are tried.
func (h *held) waits(binding informers.Key, resource schema.GroupResource,
	remove func(*unstructured.Unstructured) error) func(*unstructured.Unstructured) bool {
	waiting := false
	return func(u *unstructured.Unstructured) bool {
		waiting = waiting || u.GetDeletionTimestamp() == nil || !h.overdue(binding, resource, remove(u))
		return waiting
	}
}

// overdue notes whether finalizers can be removed, and returns whether that has failed for long.
func (h *held) overdue(binding informers.Key, resource schema.GroupResource, problem error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if problem != nil && ended(problem) {
		return false
	}
	if problem == nil || apierrors.IsNotFound(problem) {
		delete(h.since[binding], resource)
		return false
	}
	since, ok := h.since[binding][resource]
	if !ok {
		if h.since[binding] == nil {
			h.since[binding] = map[schema.GroupResource]time.Time{}
		}
		since = h.clock.Now()
		h.since[binding][resource] = since
	}
	return h.clock.Since(since) >= heldPatience
}

// ended returns whether an error says nothing of an object: the server had no time for it.
func ended(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err)
}

// until returns when the finalizers of a resource will not count any more; zero if they can be removed.
func (h *held) until(binding informers.Key, resource schema.GroupResource) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if since, ok := h.since[binding][resource]; ok {
		return since.Add(heldPatience)
	}
	return time.Time{}
}

func (h *held) forget(binding informers.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.since, binding)
}

// removeFinalizers tries to remove the finalizers of an object, and changes nothing.
func (r *reconciler) removeFinalizers(ctx context.Context, resource schema.GroupVersionResource, u *unstructured.Unstructured) error {
	_, err := r.Metadata.Resource(resource).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
