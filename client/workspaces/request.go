package workspaces

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Request identifies an object to reconcile, and its logical cluster.
type Request struct {
	Cluster string
	reconcile.Request
}

// String returns <cluster>|<namespace>/<name>.
func (r Request) String() string { return r.Cluster + separator + r.Request.String() }

// Each returns a reconciler that calls one with the logical cluster of each request in the context.
func Each(one reconcile.Reconciler) reconcile.TypedReconciler[Request] {
	return reconcile.TypedFunc[Request](func(ctx context.Context, r Request) (reconcile.Result, error) {
		ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("cluster", r.Cluster, "namespace", r.Namespace, "name", r.Name))
		return one.Reconcile(In(ctx, r.Cluster), r.Request)
	})
}

// Lift returns a handler that calls one, and enqueues its requests for the logical cluster of the event's object.
func Lift(one handler.EventHandler) handler.TypedEventHandler[client.Object, Request] {
	return handler.TypedFuncs[client.Object, Request]{
		CreateFunc:  lift(one.Create, func(e event.CreateEvent) client.Object { return e.Object }),
		UpdateFunc:  lift(one.Update, func(e event.UpdateEvent) client.Object { return e.ObjectNew }),
		DeleteFunc:  lift(one.Delete, func(e event.DeleteEvent) client.Object { return e.Object }),
		GenericFunc: lift(one.Generic, func(e event.GenericEvent) client.Object { return e.Object }),
	}
}

// lift converts a function for events of one cluster into one that enqueues requests for the cluster of the event's object.
func lift[E any](
	one func(context.Context, E, workqueue.TypedRateLimitingInterface[reconcile.Request]), object func(E) client.Object,
) func(context.Context, E, workqueue.TypedRateLimitingInterface[Request]) {
	return func(ctx context.Context, e E, q workqueue.TypedRateLimitingInterface[Request]) {
		cluster := ClusterOf(object(e))
		one(In(ctx, cluster), e, lifted{cluster: cluster, queue: q})
	}
}

// lifted is the queue that a handler for one cluster receives. Handlers only add to it.
type lifted struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	cluster string
	queue   workqueue.TypedRateLimitingInterface[Request]
}

func (l lifted) Add(r reconcile.Request) { l.queue.Add(Request{l.cluster, r}) }

func (l lifted) AddAfter(r reconcile.Request, after time.Duration) {
	l.queue.AddAfter(Request{l.cluster, r}, after)
}

func (l lifted) AddRateLimited(r reconcile.Request) { l.queue.AddRateLimited(Request{l.cluster, r}) }

func (l lifted) Forget(r reconcile.Request) { l.queue.Forget(Request{l.cluster, r}) }

func (l lifted) NumRequeues(r reconcile.Request) int {
	return l.queue.NumRequeues(Request{l.cluster, r})
}

func (l lifted) Len() int { return l.queue.Len() }

func (l lifted) ShuttingDown() bool { return l.queue.ShuttingDown() }
