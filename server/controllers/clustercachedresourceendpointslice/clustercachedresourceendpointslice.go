// Package clustercachedresourceendpointslice lists in every ClusterCachedResourceEndpointSlice where those who have bound its export
// read the objects, and tells what keeps them from it.
package clustercachedresourceendpointslice

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/cachedresources"
	"github.com/kcplane/kcp/server/controllers/controller"
	"github.com/kcplane/kcp/server/exports"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/scheduling"
	"github.com/kcplane/kcp/server/storage"
	"github.com/kcplane/kcp/server/virtual/replication"
)

// Inputs of the controller. Storage reaches the cluster in each call's context.
type Inputs struct {
	Set     *informers.Set
	Cached  *cachedresources.Resources
	Exports *exports.Exports
	Slices  *storage.Typed
	// ShardName is that of this shard.
	ShardName string
}

type reconciler struct{ Inputs }

// New returns the controller. Its keys are ClusterCachedResourceEndpointSlices.
func New(in Inputs) *controller.Controller {
	r := &reconciler{in}
	c := controller.New("clustercachedresourceendpointslice", 2, r.reconcile)
	c.Watch(in.Set.ClusterCachedResourceEndpointSlices.Informer)
	c.WatchMapped(in.Set.ClusterCachedResources.Informer, func(obj runtime.Object) []informers.Key {
		return controller.KeysOf(in.Cached.Naming(obj.(*cachev1alpha1.ClusterCachedResource).Name))
	})
	c.WatchMapped(in.Set.APIExports.Informer, func(obj runtime.Object) []informers.Key {
		return controller.KeysOf(in.Cached.NamingExport(obj.(*apisv1alpha2.APIExport).Name))
	})
	// One of very many bindings changes nothing: the first one and the last one do.
	in.Set.APIBindings.AddHandler(func(old, obj runtime.Object) {
		for _, b := range []runtime.Object{old, obj} {
			b, ok := b.(*apisv1alpha2.APIBinding)
			if !ok || b == nil || b.Spec.Reference.Export == nil {
				continue
			}
			for _, slice := range in.Cached.NamingExport(b.Spec.Reference.Export.Name) {
				cluster := logicalcluster.Of(slice) // as that of its export
				if string(cluster) == b.Status.APIExportClusterName && in.Exports.HasBindings(cluster, slice.Spec.Export.Name) != (len(slice.Status.Endpoints) > 0) {
					c.Enqueue(informers.Key{Cluster: cluster, Name: slice.Name})
				}
			}
		}
	})
	c.WatchMapped(in.Set.Shards.Informer, controller.Every(in.Set.ClusterCachedResourceEndpointSlices.Informer))
	return c
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	slice, err := r.Set.ClusterCachedResourceEndpointSlices.Get(key.Cluster, "", key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || slice.DeletionTimestamp != nil {
		return err
	}
	status := slice.Status.DeepCopy()
	if err := r.describe(key.Cluster, slice, status); err != nil {
		return err
	}
	err = r.Slices.Update(ctx, key.Name, &cachev1alpha1.ClusterCachedResourceEndpointSlice{}, func(obj runtime.Object) error {
		obj.(*cachev1alpha1.ClusterCachedResourceEndpointSlice).Status = *status
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// describe brings a status up to date.
func (r *reconciler) describe(cluster logicalcluster.Name, slice *cachev1alpha1.ClusterCachedResourceEndpointSlice, status *cachev1alpha1.ClusterCachedResourceEndpointSliceStatus) error {
	condition := func(kind, reason, message string) {
		c := corev1alpha1.Condition{Type: kind, Status: metav1.ConditionTrue}
		if reason != "" {
			c = corev1alpha1.Condition{Type: kind, Status: metav1.ConditionFalse, Severity: "Error", Reason: reason, Message: message}
		}
		scheduling.SetCondition(&status.Conditions, c)
	}
	cached, err := r.Cached.Find(slice)
	switch {
	case apierrors.IsNotFound(err):
		condition(cachev1alpha1.ResourceValid, cachev1alpha1.ReasonNotFound, "there is no such ClusterCachedResource")
	case err != nil:
		return err
	case cached.Status.Phase != cachev1alpha1.PhaseReady:
		condition(cachev1alpha1.ResourceValid, cachev1alpha1.ReasonInvalidReference, "the ClusterCachedResource is not ready: see its conditions")
	default:
		condition(cachev1alpha1.ResourceValid, "", "")
	}
	export, err := r.Cached.Export(slice)
	switch {
	case apierrors.IsNotFound(err):
		condition(cachev1alpha1.APIExportValid, apisv1alpha2.ReasonAPIExportNotFound, "there is no such APIExport in this workspace")
	case err != nil:
		return err
	case len(cachedresources.Shown(export, slice.Name)) == 0:
		condition(cachev1alpha1.APIExportValid, cachev1alpha1.ReasonAPIExportInvalidReference, "no resource of the APIExport has this slice as its virtual storage")
	default:
		condition(cachev1alpha1.APIExportValid, "", "")
	}
	status.Endpoints = nil
	if export == nil || !r.Exports.HasBindings(cluster, export.Name) {
		return nil
	}
	shard, err := r.Set.Shards.Get(logicalcluster.Root, "", r.ShardName)
	if err != nil {
		return fmt.Errorf("the shard of this server: %w", err)
	}
	status.Endpoints = []apisv1alpha1.APIExportEndpoint{{URL: shard.Spec.VirtualWorkspaceURL + replication.Path(cluster, slice.Name)}}
	return nil
}
