package runner

import (
	"k8s.io/client-go/util/workqueue"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// NewQueue returns a queue in which logical clusters take turns: an item waits for one item of each other cluster at a time, and for
// those before it of its own. Only clusters with items in the queue are in memory.
func NewQueue[T comparable](name string, limiter workqueue.TypedRateLimiter[T],
	clusterOf func(T) logicalcluster.Name) workqueue.TypedRateLimitingInterface[T] {
	ready := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
		Name: name, Queue: &turns[T]{clusterOf: clusterOf, items: map[logicalcluster.Name][]T{}},
	})
	delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Name: name, Queue: ready})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[T]{Name: name, DelayingQueue: delayed})
}

// turns implements workqueue.Queue.
type turns[T comparable] struct {
	clusterOf func(T) logicalcluster.Name
	items     map[logicalcluster.Name][]T
	order     []logicalcluster.Name // each cluster with items once, the next one first
	n         int
}

// Touch implements workqueue.Queue.
func (q *turns[T]) Touch(T) {}

// Push implements workqueue.Queue.
func (q *turns[T]) Push(item T) {
	cluster := q.clusterOf(item)
	waiting := q.items[cluster]
	if len(waiting) == 0 {
		q.order = append(q.order, cluster)
	}
	q.items[cluster] = append(waiting, item)
	q.n++
}

// Len implements workqueue.Queue.
func (q *turns[T]) Len() int { return q.n }

// Pop implements workqueue.Queue.
func (q *turns[T]) Pop() T {
	cluster := q.order[0]
	q.order = q.order[1:]
	waiting := q.items[cluster]
	item := waiting[0]
	if waiting = waiting[1:]; len(waiting) == 0 {
		delete(q.items, cluster)
	} else {
		q.items[cluster] = waiting
		q.order = append(q.order, cluster)
	}
	q.n--
	return item
}
