// Package loop has what controller and agent have in common: queues, workers, and handlers of events.
package loop

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	first   = 5 * time.Millisecond
	longest = time.Minute
)

// RateLimiter doubles the delay after an error up to a minute, so that work continues soon after a server was away.
func RateLimiter[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](first, longest)
}

// NewQueue returns a queue of items with a RateLimiter.
func NewQueue[T comparable]() workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueue(RateLimiter[T]())
}

// Work calls do with each item of a queue until the queue is shut down. do returns when to call it again with the item; zero means never.
func Work[T comparable](
	ctx context.Context,
	queue workqueue.TypedRateLimitingInterface[T],
	do func(context.Context, T) (time.Duration, error),
) error {
	for {
		item, stopped := queue.Get()
		if stopped {
			return nil
		}
		again, err := do(ctx, item)
		switch {
		case err == nil:
			queue.Forget(item)
			if again > 0 {
				queue.AddAfter(item, again)
			}
		case ctx.Err() == nil:
			if !apierrors.IsConflict(err) {
				klog.Background().Info("Trying again", "object", fmt.Sprint(item), "error", err.Error())
			}
			queue.AddRateLimited(item)
		}
		queue.Done(item)
	}
}

// Handler returns a handler that calls changed with each object, also with the last known state of a deleted one.
func Handler[T any](changed func(object T, deleted bool)) cache.ResourceEventHandler {
	call := func(o any, deleted bool) {
		if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = unknown.Obj
		}
		if object, ok := o.(T); ok {
			changed(object, deleted)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { call(o, false) }, UpdateFunc: func(_, o any) { call(o, false) }, DeleteFunc: func(o any) { call(o, true) },
	}
}
