package runner

import (
	"k8s.io/client-go/util/workqueue"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// newQueue returns a queue in which logical clusters take turns: an item waits for at most one item of each other cluster at a time, and
// for earlier items of its own cluster. Only clusters with items in the queue take memory.
func newQueue[K Item](name string, limiter workqueue.TypedRateLimiter[K]) workqueue.TypedRateLimitingInterface[K] {
	ready := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Name: name, Queue: &turns[K]{items: map[logicalcluster.Name][]K{}}})
	delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Name: name, Queue: ready})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[K]{Name: name, DelayingQueue: delayed})
}

// turns implements workqueue.Queue.
type turns[K Item] struct {
	items map[logicalcluster.Name][]K
	order []logicalcluster.Name // each cluster with items once, the next one first
	n     int
}

// Touch implements workqueue.Queue.
func (q *turns[K]) Touch(K) {}

// Push implements workqueue.Queue.
func (q *turns[K]) Push(item K) {
	cluster := item.LogicalCluster()
	waiting := q.items[cluster]
	if len(waiting) == 0 {
		q.order = append(q.order, cluster)
	}
	q.items[cluster] = append(waiting, item)
	q.n++
}

// Len implements workqueue.Queue.
func (q *turns[K]) Len() int { return q.n }

// Pop implements workqueue.Queue.
func (q *turns[K]) Pop() K {
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
