// Package runner has what all controllers of the server have in common: a queue of keys of all logical clusters in which the clusters
// take turns, workers that are replaced while they are slow, and retries with exponential backoff. A controller adds its Inputs and a
// function reconcile, which reads, decides and commits one object.
//
// The delays of this package pace the queue and decide nothing, so its clock is not injected: tests that run a queue use testing/synctest.
// Controllers that read the time have a clock in their Inputs.
package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Item is what a queue holds: informers.Key or ObjectKey.
type Item interface {
	comparable
	fmt.Stringer
	// LogicalCluster returns the logical cluster that reconciling the item addresses.
	LogicalCluster() logicalcluster.Name
}

// Controller reconciles the objects of one kind.
type Controller struct{ *loop[informers.Key] }

// ObjectController reconciles objects of all resources.
type ObjectController struct{ *loop[ObjectKey] }

// New returns a controller, which does nothing until Run. reconcile commits what one object needs. Its context addresses the logical
// cluster of the key. After an error it is called again.
func New(name string, workers int, reconcile func(context.Context, informers.Key) error) *Controller {
	return &Controller{newLoop(name, workers, reconcile)}
}

// NewForObjects is New for a controller of the objects of all resources.
func NewForObjects(name string, workers int, reconcile func(context.Context, ObjectKey) error) *ObjectController {
	return &ObjectController{newLoop(name, workers, reconcile)}
}

// Watch reconciles each object of i when it changes.
func (c *Controller) Watch(i *informers.Informer) {
	c.WatchMapped(i, func(obj runtime.Object) []informers.Key {
		key, err := informers.KeyOf(obj)
		if err != nil {
			return nil
		}
		return []informers.Key{key}
	})
}

// WatchMapped reconciles the keys that keys returns for the old and the new state of each changed object of i.
func (c *Controller) WatchMapped(i *informers.Informer, keys func(obj runtime.Object) []informers.Key) {
	i.AddHandler(c.mapped(keys))
}

// WatchMappedChanges is WatchMapped for changes from now on.
func (c *Controller) WatchMappedChanges(i *informers.Informer, keys func(obj runtime.Object) []informers.Key) {
	i.AddHandlerForChanges(c.mapped(keys))
}

// WatchMappedForAll is WatchMapped for the objects of all shards. keys must return objects of this shard only.
func (c *Controller) WatchMappedForAll(i *informers.Informer, keys func(obj runtime.Object) []informers.Key) {
	i.AddHandlerForAll(c.mapped(keys))
}

func (c *Controller) mapped(keys func(obj runtime.Object) []informers.Key) informers.Handler {
	return func(old, obj runtime.Object) {
		for _, o := range []runtime.Object{old, obj} {
			if o == nil {
				continue
			}
			for _, key := range keys(o) {
				c.queue.Add(key)
			}
		}
	}
}

// loop owns the queue and the workers of one controller.
type loop[K Item] struct {
	name      string
	workers   int
	reconcile func(context.Context, K) error
	queue     workqueue.TypedRateLimitingInterface[K]
	beside    []func(context.Context)
	// expected reports whether failures are logged as information instead of errors.
	expected bool
}

func newLoop[K Item](name string, workers int, reconcile func(context.Context, K) error) *loop[K] {
	return &loop[K]{
		name: name, workers: workers, reconcile: reconcile,
		queue: newQueue(name, workqueue.NewTypedItemExponentialFailureRateLimiter[K](5*time.Millisecond, time.Minute)),
	}
}

// Enqueue requests a reconciliation of key.
func (l *loop[K]) Enqueue(key K) { l.queue.Add(key) }

// EnqueueAfter requests a reconciliation of key after d.
func (l *loop[K]) EnqueueAfter(key K, d time.Duration) { l.queue.AddAfter(key, d) }

// ExpectFailures makes failures appear in the log at verbosity 2 only. They are retried in any case.
func (l *loop[K]) ExpectFailures() { l.expected = true }

// RunBeside makes Run call f beside the workers. f must return when its context ends, and Run returns after it.
func (l *loop[K]) RunBeside(f func(ctx context.Context)) { l.beside = append(l.beside, f) }

// RunEvery makes Run call f at once, and then at every interval of clock.
func (l *loop[K]) RunEvery(clock clock.WithTicker, interval time.Duration, f func()) {
	l.RunBeside(func(ctx context.Context) {
		ticker := clock.NewTicker(interval)
		defer ticker.Stop()
		for {
			f()
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
			}
		}
	})
}

// Run works until ctx ends, and returns when the last worker is done.
func (l *loop[K]) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues(decisionlog.Controller, l.name)
	ctx = klog.NewContext(ctx, logger)
	var running sync.WaitGroup
	for _, f := range l.beside {
		running.Go(func() { f(ctx) })
	}
	work(ctx, l.queue, l.workers, l.retry)
	running.Wait()
}

// Reconcile reconciles one object once, in this goroutine. Tests of decisions call it instead of Run.
func (l *loop[K]) Reconcile(ctx context.Context, key K) error {
	return l.reconcile(logicalcluster.WithName(ctx, key.LogicalCluster()), key)
}

// Moving reports whether a logical cluster is moving to or from this shard, or has arrived and is not in all informers.
type Moving func(logicalcluster.Name) bool

type movingKey struct{}

// WithMoving returns a context for Run in which items of moving logical clusters wait: some informers have their objects, others do not.
func WithMoving(ctx context.Context, moving Moving) context.Context {
	return context.WithValue(ctx, movingKey{}, moving)
}

func movingFrom(ctx context.Context) Moving {
	if moving, ok := ctx.Value(movingKey{}).(Moving); ok {
		return moving
	}
	return func(logicalcluster.Name) bool { return false }
}

// retry reconciles one object, and enqueues it again if that fails.
func (l *loop[K]) retry(ctx context.Context, key K) {
	defer utilruntime.HandleCrashWithContext(ctx)
	if movingFrom(ctx)(key.LogicalCluster()) {
		l.queue.AddRateLimited(key)
		return
	}
	err := l.Reconcile(ctx, key)
	switch {
	case err == nil:
		if logger := decisionlog.ForDecision(ctx); logger.Enabled() {
			resource, namespace, name := objectOf(key)
			logger.Info("Reconciled", decisionlog.Cluster, key.LogicalCluster(), decisionlog.Resource, resource,
				decisionlog.Namespace, namespace, decisionlog.Name, name)
		}
		l.queue.Forget(key)
	case ctx.Err() != nil:
	default:
		l.log(ctx, key, err)
		l.queue.AddRateLimited(key)
	}
}

func (l *loop[K]) log(ctx context.Context, key K, err error) {
	cluster := key.LogicalCluster()
	resource, namespace, name := objectOf(key)
	switch {
	case l.expected:
		decisionlog.ForChange(ctx, cluster).Info("Reconciling failed, will retry", decisionlog.Cluster, cluster,
			decisionlog.Resource, resource, decisionlog.Namespace, namespace, decisionlog.Name, name, decisionlog.Reason, err)
	case !apierrors.IsConflict(err):
		decisionlog.ForFailure(ctx, cluster).Error(err, "Reconciling failed, will retry", decisionlog.Cluster, cluster,
			decisionlog.Resource, resource, decisionlog.Namespace, namespace, decisionlog.Name, name)
	}
}

// objectOf returns what identifies the object of an item in its logical cluster. The controller implies the resource of informers.Key.
func objectOf(item any) (resource, namespace, name string) {
	switch key := item.(type) {
	case informers.Key:
		return "", key.Namespace, key.Name
	case ObjectKey:
		return key.Resource.GroupResource().String(), key.Namespace, key.Name
	}
	return "", "", ""
}
