// Package clustercachedresource gives every ClusterCachedResource its identity, and writes into its status whether consumers can read its
// objects, and how many there are.
package clustercachedresource

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/internal/tenancy/identity"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// countInterval is how long changes of objects are collected before the objects are counted again.
const countInterval = time.Second

// Inputs of the controller. Clients and storage reach the cluster in each call's context.
type Inputs struct {
	Set      *informers.Set
	Cached   *cachedresources.Resources
	Kube     kubernetes.Interface
	Metadata metadata.Interface
	// Serves returns the resources that a cluster serves and that are not built in.
	Serves func(logicalcluster.Name) []customresources.Installed
	// Stored stores ClusterCachedResources.
	Stored storage.Objects
	// Objects are watched, to count them.
	Objects *runner.ObjectEvents
	// InCache counts the objects that other shards can read. It is nil on a single shard, whose consumers read the provider's objects.
	InCache InCache
}

// InCache counts the objects of ClusterCachedResources in the cache server.
type InCache interface {
	Count(informers.Key) int
	// OnCounted makes InCache call a function when a count changes.
	OnCounted(func(informers.Key))
}

type reconciler struct {
	Inputs
	controller *runner.Controller
}

// New returns the controller. Its keys are ClusterCachedResources.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in}
	r.controller = runner.New("clustercachedresource", 2, r.reconcile)
	r.controller.Watch(in.Set.ClusterCachedResources.Informer)
	r.controller.WatchMapped(in.Set.Secrets.Informer, r.mapped(func(resource *cachev1alpha1.ClusterCachedResource, secret informers.Key) bool {
		ref := identity.Reference(resource.Spec.Identity, resource.Name)
		return ref.Namespace == secret.Namespace && ref.Name == secret.Name
	}))
	// The resources that are served after the change are known a moment later.
	anyOf := r.mapped(func(*cachev1alpha1.ClusterCachedResource, informers.Key) bool { return true })
	served := func(old, obj runtime.Object) {
		for _, o := range []runtime.Object{old, obj} {
			if o == nil {
				continue
			}
			for _, key := range anyOf(o) {
				r.controller.EnqueueAfter(key, countInterval)
			}
		}
	}
	in.Set.CustomResourceDefinitions.AddHandler(served)
	in.Set.APIBindings.AddHandler(served)
	in.Objects.AddHandler(r)
	if in.InCache != nil {
		in.InCache.OnCounted(r.controller.Enqueue)
	}
	return r.controller
}

// mapped maps an object to those ClusterCachedResources of its cluster that it concerns.
func (r *reconciler) mapped(concerns func(*cachev1alpha1.ClusterCachedResource, informers.Key) bool) func(runtime.Object) []informers.Key {
	return func(obj runtime.Object) []informers.Key {
		key, err := informers.KeyOf(obj)
		if err != nil {
			return nil
		}
		var keys []informers.Key
		for _, resource := range r.Cached.In(key.Cluster) {
			if concerns(resource, key) {
				keys = append(keys, informers.Key{Cluster: key.Cluster, Name: resource.Name})
			}
		}
		return keys
	}
}

// Changed implements runner.ObjectHandler.
func (r *reconciler) Changed(resource schema.GroupVersionResource, obj metav1.Object) {
	for _, cached := range r.Cached.In(logicalcluster.Of(obj)) {
		if cached.Spec.Group == resource.Group && cached.Spec.Resource == resource.Resource {
			r.controller.EnqueueAfter(informers.Key{Cluster: logicalcluster.Of(obj), Name: cached.Name}, countInterval)
		}
	}
}

// Deleted implements runner.ObjectHandler.
func (r *reconciler) Deleted(resource schema.GroupVersionResource, obj metav1.Object) {
	r.Changed(resource, obj)
}

// Relisted implements runner.ObjectHandler.
func (r *reconciler) Relisted(resource schema.GroupVersionResource) {
	for _, obj := range r.Set.ClusterCachedResources.Indexer().List() {
		cached := obj.(*cachev1alpha1.ClusterCachedResource)
		if cached.Spec.Group == resource.Group && cached.Spec.Resource == resource.Resource {
			r.controller.EnqueueAfter(informers.Key{Cluster: logicalcluster.Of(cached), Name: cached.Name}, countInterval)
		}
	}
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	resource, err := r.Set.ClusterCachedResources.Get(key.Cluster, "", key.Name)
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	if resource.DeletionTimestamp != nil {
		return r.release(ctx, resource)
	}
	ref := identity.Reference(resource.Spec.Identity, resource.Name)
	secret, err := identity.Secret(ctx, r.Kube, r.Set.Namespaces, ref, resource.Name, resource.Status.IdentityHash)
	if err != nil {
		return err
	}
	version, problem := r.problem(key.Cluster, resource)
	count := 0
	if problem == nil {
		if count, err = r.count(ctx, resource, version); err != nil {
			return err
		}
	}
	cached := count
	if r.InCache != nil {
		cached = r.InCache.Count(key)
	}
	err = r.Stored.Update(ctx, key.Name, &cachev1alpha1.ClusterCachedResource{}, func(obj runtime.Object) error {
		live := obj.(*cachev1alpha1.ClusterCachedResource)
		if err := runner.Same(live, resource); err != nil || live.DeletionTimestamp != nil {
			return err
		}
		if !slices.Contains(live.Finalizers, cachev1alpha1.ClusterCachedResourceFinalizer) {
			live.Finalizers = append(live.Finalizers, cachev1alpha1.ClusterCachedResourceFinalizer)
		}
		hash, condition := identity.Verify(live.Status.IdentityHash, ref, secret)
		live.Status.IdentityHash = hash
		conditions.Set(&live.Status.Conditions, condition)
		describe(&live.Status, problem, condition.Status == metav1.ConditionTrue, cachev1alpha1.ResourceCounts{Cache: cached, Local: count})
		return nil
	})
	return runner.IgnoreNotFound(err)
}

// problem is why consumers cannot read the objects.
type problem struct{ reason, message string }

// problem returns the version in which the cluster serves the resource, or why the resource cannot be used.
func (r *reconciler) problem(cluster logicalcluster.Name, resource *cachev1alpha1.ClusterCachedResource) (string, *problem) {
	key := customresources.ResourceName(resource.Spec.Resource, resource.Spec.Group)
	served := r.Serves(cluster)
	i := slices.IndexFunc(served, func(i customresources.Installed) bool { return i.Key() == key })
	switch {
	case i < 0:
		return "", &problem{cachev1alpha1.ReasonInvalidReference, fmt.Sprintf("the workspace neither defines nor binds a resource %s", key)}
	case served[i].IsSystem():
		return "", &problem{cachev1alpha1.ReasonInvalidReference,
			fmt.Sprintf("%s is the server's own: only what the workspace defines or binds can be shown to others", key)}
	case served[i].IsVirtual():
		return "", &problem{cachev1alpha1.ReasonInvalidReference, fmt.Sprintf("the objects of %s are another provider's", key)}
	case served[i].CRD.Spec.Scope != apiextensionsv1.ClusterScoped:
		return "", &problem{cachev1alpha1.ReasonResourceNotClusterScoped, fmt.Sprintf("%s is namespaced", key)}
	}
	version := served[i].VersionOf(resource.Spec.Version)
	if version == "" {
		return "", &problem{cachev1alpha1.ReasonInvalidReference, fmt.Sprintf("version %q of %s is not served", resource.Spec.Version, key)}
	}
	return version, nil
}

// describe brings a status up to date.
func describe(status *cachev1alpha1.ClusterCachedResourceStatus, p *problem, identified bool, counts cachev1alpha1.ResourceCounts) {
	valid := corev1alpha1.Condition{Type: cachev1alpha1.ResourceValid, Status: metav1.ConditionTrue}
	if p != nil {
		valid = corev1alpha1.Condition{Type: cachev1alpha1.ResourceValid, Status: metav1.ConditionFalse, Severity: "Error",
			Reason: p.reason, Message: p.message}
	}
	conditions.Set(&status.Conditions, valid)
	status.ResourceCounts = &counts
	status.Phase = cachev1alpha1.PhaseInitializing
	started := corev1alpha1.Condition{Type: cachev1alpha1.ReplicationStarted, Status: metav1.ConditionFalse, Severity: "Info",
		Reason: cachev1alpha1.ReasonNoResources}
	if p == nil && identified {
		status.Phase = cachev1alpha1.PhaseReady
		started = corev1alpha1.Condition{Type: cachev1alpha1.ReplicationStarted, Status: metav1.ConditionTrue,
			Reason: cachev1alpha1.ReasonStarted}
	}
	conditions.Set(&status.Conditions, started)
}

// count returns how many objects are selected.
func (r *reconciler) count(ctx context.Context, resource *cachev1alpha1.ClusterCachedResource, version string) (int, error) {
	objects := r.Metadata.Resource(schema.GroupVersionResource{Group: resource.Spec.Group, Version: version,
		Resource: resource.Spec.Resource})
	options := metav1.ListOptions{Limit: 1} // without a selector, the server returns the number of remaining objects
	if resource.Spec.LabelSelector != nil {
		options = metav1.ListOptions{Limit: 500, LabelSelector: metav1.FormatLabelSelector(resource.Spec.LabelSelector)}
	}
	for n := 0; ; {
		list, err := objects.List(ctx, options)
		if err != nil {
			return 0, fmt.Errorf("counting %s: %w", resource.Spec.Resource, err)
		}
		n += len(list.Items)
		if list.RemainingItemCount != nil {
			return n + int(*list.RemainingItemCount), nil
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return n, nil
		}
	}
}

// release removes the finalizer of a ClusterCachedResource that is being deleted. Consumers cannot read its objects from then on.
func (r *reconciler) release(ctx context.Context, resource *cachev1alpha1.ClusterCachedResource) error {
	err := r.Stored.Update(ctx, resource.Name, &cachev1alpha1.ClusterCachedResource{}, func(obj runtime.Object) error {
		live := obj.(*cachev1alpha1.ClusterCachedResource)
		if err := runner.Same(live, resource); err != nil {
			return err
		}
		live.Status.Phase = cachev1alpha1.PhaseDeleting
		conditions.Set(&live.Status.Conditions, corev1alpha1.Condition{
			Type: cachev1alpha1.ResourceValid, Status: metav1.ConditionFalse, Severity: "Info", Reason: cachev1alpha1.ReasonDeleting,
			Message: "it is being deleted",
		})
		return nil
	})
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	return r.Stored.Release(ctx, resource.Name, resource.UID, cachev1alpha1.ClusterCachedResourceFinalizer,
		func() runtime.Object { return &cachev1alpha1.ClusterCachedResource{} })
}
