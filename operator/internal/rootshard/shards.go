package rootshard

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=shards,verbs=get;list;watch

// finalizer keeps a RootShard while Shards refer to it, because they use its objects.
const finalizer = "operator.kcp.io/shards"

// kind of Shards. The API server may not serve it.
var kind = v1alpha1.SchemeGroupVersion.WithKind("Shard")

// States of the watch for Shards.
const (
	notServed int32 = iota // the API server does not serve the kind, as far as discovered
	reading                // it serves the kind, and the caches are not filled yet
	known
)

// Shards lists the Shards, as soon as the API server serves them.
type Shards struct {
	cache  cache.Cache
	mapper meta.RESTMapper
	state  atomic.Int32
}

// Start waits until the API server serves the kind, and from then on triggers reconciliations of the RootShards that Shards refer to.
func (s *Shards) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		served := func(context.Context) (bool, error) {
			_, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
			return err == nil, nil
		}
		if wait.PollUntilContextCancel(ctx, again, true, served) != nil {
			return
		}
		s.state.Store(reading)
		shard := &unstructured.Unstructured{}
		shard.SetGroupVersionKind(kind)
		watch := source.Kind[client.Object](s.cache, shard, handler.EnqueueRequestsFromMapFunc(ofShard))
		if watch.Start(ctx, queue) != nil || watch.WaitForSync(ctx) != nil {
			return
		}
		s.state.Store(known)
		list, err := s.list(ctx) // earlier reconciliations could not list Shards
		if err != nil {
			return
		}
		for i := range list.Items {
			for _, request := range ofShard(ctx, &list.Items[i]) {
				queue.Add(request)
			}
		}
	}()
	return nil
}

// ofShard returns a request for the RootShard that a Shard refers to, if any.
func ofShard(_ context.Context, shard client.Object) []reconcile.Request {
	root := rootOf(shard.(*unstructured.Unstructured))
	if root == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: shard.GetNamespace(), Name: root}}}
}

// rootOf returns the name of the RootShard that a Shard refers to, or an empty string.
func rootOf(shard *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(shard.Object, "spec", "rootShard", "ref", "name")
	return name
}

// of returns the names of the Shards that refer to a RootShard, and whether these are known. Shards that are being deleted are not
// included: otherwise, both could wait for each other and block the deletion of their namespace, if kcp does not answer.
func (s *Shards) of(ctx context.Context, rs *v1alpha1.RootShard) (names []string, sure bool, err error) {
	switch {
	case s == nil:
		return nil, true, nil
	case s.state.Load() == reading:
		return nil, false, nil
	case s.state.Load() == notServed:
		if !controllerutil.ContainsFinalizer(rs, finalizer) {
			return nil, true, nil
		}
		_, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		return nil, meta.IsNoMatchError(err), nil
	}
	list, err := s.list(ctx, client.InNamespace(rs.Namespace))
	if err != nil {
		return nil, false, err
	}
	for i := range list.Items {
		if shard := &list.Items[i]; rootOf(shard) == rs.Name && shard.GetDeletionTimestamp().IsZero() {
			names = append(names, shard.GetName())
		}
	}
	slices.Sort(names)
	return names, true, nil
}

func (s *Shards) list(ctx context.Context, options ...client.ListOption) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list, s.cache.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...)
}

// updateFinalizer writes the Shards that refer to a RootShard to its status, and adds or removes its finalizer. It returns when to check
// again.
func (r *Reconciler) updateFinalizer(ctx context.Context, rs *v1alpha1.RootShard) (ctrl.Result, error) {
	names, sure, err := r.Shards.of(ctx, rs)
	if err != nil || !sure {
		return ctrl.Result{RequeueAfter: again}, err
	}
	before, held := rs.DeepCopy(), len(names) > 0
	switch {
	case held && rs.DeletionTimestamp.IsZero() && rs.Namespace != r.Namespace: // both may be deleted with this namespace
		controllerutil.AddFinalizer(rs, finalizer)
	case !held:
		controllerutil.RemoveFinalizer(rs, finalizer)
	}
	if !slices.Equal(rs.Finalizers, before.Finalizers) {
		if err := r.Patch(ctx, rs, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	rs.Status.Shards = nil
	for _, name := range names {
		rs.Status.Shards = append(rs.Status.Shards, v1alpha1.ShardReference{Name: name})
	}
	return ctrl.Result{}, nil
}

// deleting reports what the deletion of a RootShard waits for. The garbage collector deletes its objects.
func (r *Reconciler) deleting(rs *v1alpha1.RootShard) {
	rs.Status.Phase = v1alpha1.PhaseDeleting
	if len(rs.Status.Shards) == 0 || !controllerutil.ContainsFinalizer(rs, finalizer) {
		return
	}
	var names []string
	for _, shard := range rs.Status.Shards {
		names = append(names, shard.Name)
	}
	report := conditions.NewReport(conditions.Rest)
	report.Set(conditions.Rest, conditions.Stall("ShardsRemain", "Shards still refer to this RootShard: delete %s",
		strings.Join(names, ", ")))
	report.Write(&rs.Status.Conditions, rs.Generation)
	rs.Status.ObservedGeneration = rs.Generation
}
