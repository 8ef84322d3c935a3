// Package runner is the one loop that every controller of the server runs: keys of all logical clusters in one
// queue, in which the clusters take turns, workers that slow items do not hold, and exponential retry. A controller adds its inputs and a
// reconcile function.
package runner

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Reconcile reads, decides and commits one object. ctx addresses the key's logical cluster. An error is retried later.
type Reconcile func(ctx context.Context, key informers.Key) error

// Controller owns the queue and the workers of one controller.
type Controller struct {
	name      string
	workers   int
	reconcile Reconcile
	queue     workqueue.TypedRateLimitingInterface[informers.Key]
}

// New returns a controller that does nothing until Run.
func New(name string, workers int, reconcile Reconcile) *Controller {
	return &Controller{
		name: name, workers: workers, reconcile: reconcile,
		queue: NewQueue(name, workqueue.NewTypedItemExponentialFailureRateLimiter[informers.Key](5*time.Millisecond, time.Minute), clusterOf),
	}
}

// Enqueue asks for a reconciliation of key.
func (c *Controller) Enqueue(key informers.Key) { c.queue.Add(key) }

// EnqueueAfter asks for a reconciliation of key once d has passed.
func (c *Controller) EnqueueAfter(key informers.Key, d time.Duration) { c.queue.AddAfter(key, d) }

// Reconcile reconciles one object, once, in this goroutine. Tests of decisions call it instead of Run.
func (c *Controller) Reconcile(ctx context.Context, key informers.Key) error {
	return c.reconcile(logicalcluster.WithName(ctx, key.Cluster), key)
}

// Watch reconciles each object of i whenever it changes.
func (c *Controller) Watch(i *informers.Informer) {
	c.WatchMapped(i, func(obj runtime.Object) []informers.Key {
		key, err := informers.KeyOf(obj)
		if err != nil {
			return nil
		}
		return []informers.Key{key}
	})
}

// WatchMapped reconciles what keys returns for the old and the new state of each changed object of i.
func (c *Controller) WatchMapped(i *informers.Informer, keys func(obj runtime.Object) []informers.Key) {
	i.AddHandler(func(old, obj runtime.Object) {
		for _, o := range []runtime.Object{old, obj} {
			if o == nil {
				continue
			}
			for _, key := range keys(o) {
				c.queue.Add(key)
			}
		}
	})
}

// Run works until ctx ends, and returns when the last worker is done.
func (c *Controller) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("controller", c.name)
	Work(klog.NewContext(ctx, logger), c.queue, c.workers, clusterOf, c.do)
}

func clusterOf(key informers.Key) logicalcluster.Name { return key.Cluster }

func (c *Controller) do(ctx context.Context, key informers.Key) {
	defer utilruntime.HandleCrashWithContext(ctx)
	err := c.Reconcile(ctx, key)
	switch {
	case err == nil:
		c.queue.Forget(key)
	case ctx.Err() != nil:
	default:
		if !apierrors.IsConflict(err) {
			klog.FromContext(ctx).Error(err, "reconciliation failed, will retry", "key", key.String())
		}
		c.queue.AddRateLimited(key)
	}
}
