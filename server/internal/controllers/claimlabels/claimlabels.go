// Package claimlabels keeps the labels of permission claims right on objects that were written while the claims of their
// cluster changed: admission did not know the new ones, and whoever labelled what there was did not see the object yet.
package claimlabels

import (
	"context"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const workers = 2

// object is one of a resource.
type object struct {
	resource schema.GroupVersionResource
	key      informers.Key
}

// Controller labels objects. It implements garbagecollector.Observer, and has no watch of its own.
type Controller struct {
	exports  *exports.Exports
	metadata metadata.Interface
	served   Served
	queue    workqueue.TypedRateLimitingInterface[object]
}

// Served returns a resource in a version that the cluster of a context serves: another one may be that in which all are watched.
type Served func(ctx context.Context, resource schema.GroupVersionResource) (schema.GroupVersionResource, error)

// New returns the controller. Its client reaches the cluster in each call's context.
func New(all *exports.Exports, client metadata.Interface, served Served) *Controller {
	return &Controller{
		exports: all, metadata: client, served: served,
		queue: runner.NewQueue("claimlabels", workqueue.DefaultTypedControllerRateLimiter[object](), clusterOf),
	}
}

// Changed implements garbagecollector.Observer.
func (c *Controller) Changed(resource schema.GroupVersionResource, obj metav1.Object) {
	if resource.GroupResource() == apisv1alpha2.Resource("apibindings") {
		return // their own controller writes them when anything changes
	}
	cluster := logicalcluster.Of(obj)
	if !maps.Equal(claims.Wanted(c.exports, cluster, resource.GroupResource(), obj.GetLabels()), obj.GetLabels()) {
		c.queue.Add(object{resource, informers.Key{Cluster: cluster, Namespace: obj.GetNamespace(), Name: obj.GetName()}})
	}
}

// Deleted implements garbagecollector.Observer.
func (c *Controller) Deleted(schema.GroupVersionResource, metav1.Object) {}

// Relisted implements garbagecollector.Observer.
func (c *Controller) Relisted(schema.GroupVersionResource) {}

// Run works until ctx ends, and returns when the last worker is done.
func (c *Controller) Run(ctx context.Context) {
	runner.Work(ctx, c.queue, workers, clusterOf, c.label)
}

func clusterOf(o object) logicalcluster.Name { return o.key.Cluster }

func (c *Controller) label(ctx context.Context, o object) {
	// Admission writes the labels: it is enough to ask for a change of nothing.
	in := logicalcluster.WithName(ctx, o.key.Cluster)
	resource, err := c.served(in, o.resource)
	if err == nil {
		_, err = c.metadata.Resource(resource).Namespace(o.key.Namespace).Patch(in, o.key.Name, types.MergePatchType,
			[]byte("{}"), metav1.PatchOptions{})
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsInvalid(err) ||
		apierrors.IsForbidden(err) {
		c.queue.Forget(o)
		return
	}
	klog.FromContext(ctx).Error(err, "labelling an object with the claims on it", "resource", o.resource, "object", o.key)
	c.queue.AddRateLimited(o)
}
