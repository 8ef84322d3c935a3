package scheduling

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	workspaces      = tenancyv1alpha1.Resource("workspaces")
	logicalClusters = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters").GroupResource()
)

// Options returns base for custom resources, with the logical cluster of a Workspace stored by the request that creates
// the Workspace. What cannot be decided by then is left to the controller of workspaces.
func (s *Scheduler) Options(base generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return optionsGetter(func(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
		options, err := base.GetRESTOptions(resource, example)
		if err != nil || (resource != workspaces && resource != logicalClusters) {
			return options, err
		}
		inner := options.Decorator
		options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
			attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
			plain, destroy, err := inner(config, prefix, keyFunc, newFunc, newListFunc, attrs, triggers, indexers)
			if err != nil {
				return nil, nil, err
			}
			if resource == logicalClusters {
				return &logicalClusterStorage{Interface: plain, scheduler: s}, destroy, nil
			}
			return &workspaceStorage{Interface: plain, scheduler: s}, destroy, nil
		}
		return options, nil
	})
}

type optionsGetter func(schema.GroupResource, runtime.Object) (generic.RESTOptions, error)

func (g optionsGetter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	return g(resource, example)
}

// workspaceStorage stores the LogicalCluster of a new Workspace before the Workspace. A crash between the two leaves a
// LogicalCluster whose owner does not exist, which the controller of workspaces deletes.
type workspaceStorage struct {
	storage.Interface
	scheduler *Scheduler
}

func (w *workspaceStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a workspace is a %T", obj)
	}
	name, lc, err := w.scheduler.schedule(ctx, u)
	if err != nil || lc == nil {
		klog.FromContext(ctx).V(4).Info("workspace is scheduled later", "workspace", u.GetName(), "reason", err)
		return w.Interface.Create(ctx, key, obj, out, ttl)
	}
	inside := logicalcluster.WithName(ctx, name)
	if err := w.scheduler.Clusters.Create(inside, corev1alpha1.LogicalClusterName, lc, &corev1alpha1.LogicalCluster{}); err != nil {
		return fmt.Errorf("logical cluster of workspace %s: %w", u.GetName(), err)
	}
	err = w.Interface.Create(ctx, key, obj, out, ttl)
	if err == nil {
		parent, _ := logicalcluster.NameFrom(ctx) // as schedule has
		w.scheduler.await(ctx, func() bool { return w.scheduler.exists(name) && w.scheduler.Tree.Has(parent, u.GetName()) })
	}
	if err != nil {
		inside = context.WithoutCancel(inside) // the client may be gone by now
		if err := w.scheduler.Clusters.Delete(inside, corev1alpha1.LogicalClusterName, &corev1alpha1.LogicalCluster{}); err != nil {
			klog.FromContext(ctx).Error(err, "the logical cluster of a workspace that was not created is left", "cluster", name)
		}
	}
	return err
}

// logicalClusterStorage answers who creates a LogicalCluster when its cluster can be entered.
type logicalClusterStorage struct {
	storage.Interface
	scheduler *Scheduler
}

func (l *logicalClusterStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := l.Interface.Create(ctx, key, obj, out, ttl); err != nil {
		return err
	}
	if name, err := logicalcluster.NameFrom(ctx); err == nil {
		l.scheduler.await(ctx, func() bool { return l.scheduler.exists(name) })
	}
	return nil
}

// How often and how long a request waits until this server has seen what it has stored, so that the next request of the
// same client finds it.
const (
	awaitInterval = 500 * time.Microsecond
	awaitTimeout  = 2 * time.Second
)

func (s *Scheduler) await(ctx context.Context, seen func() bool) {
	_ = wait.PollUntilContextTimeout(ctx, awaitInterval, awaitTimeout, true, func(context.Context) (bool, error) { return seen(), nil })
}

func (s *Scheduler) exists(name logicalcluster.Name) bool {
	_, err := s.LogicalClusters.Get(name, "", corev1alpha1.LogicalClusterName)
	return err == nil
}

// schedule returns the LogicalCluster of a new workspace, into which it writes where that is. Both are nil if another
// shard takes the workspace, or something is missing.
func (s *Scheduler) schedule(ctx context.Context, u *unstructured.Unstructured) (logicalcluster.Name, *corev1alpha1.LogicalCluster, error) {
	parent, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return "", nil, err
	}
	ws := &tenancyv1alpha1.Workspace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, ws); err != nil {
		return "", nil, err
	}
	if ws.Spec.Mount != nil || ws.Spec.Cluster != "" {
		return "", nil, nil
	}
	shard, err := s.Shard(ws)
	if err != nil || shard != s.ShardName {
		return "", nil, err
	}
	if ws.Annotations == nil {
		ws.Annotations = map[string]string{}
	}
	ws.Annotations[logicalcluster.AnnotationKey] = string(parent)
	name := NewName()
	lc, err := s.LogicalCluster(ws, name)
	if err != nil {
		return "", nil, err
	}
	rest.FillObjectMetaSystemFields(lc)
	lc.Generation = 1
	s.Settle(ws, name, lc)
	if u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(ws); err != nil {
		return "", nil, err
	}
	return name, lc, nil
}
