// Package apiexportendpointslice lists in every APIExportEndpointSlice where the objects of those are who have bound the
// export: on each shard of its partition that has any.
package apiexportendpointslice

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
	"github.com/kcplane/kcp/server/controllers/controller"
	"github.com/kcplane/kcp/server/exports"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/scheduling"
	"github.com/kcplane/kcp/server/storage"
	"github.com/kcplane/kcp/server/virtual/apiexport"
)

// Inputs of the controller. Storage reaches the cluster in each call's context.
type Inputs struct {
	Set     *informers.Set
	Exports *exports.Exports
	Slices  *storage.Typed
	// ShardName is that of this shard.
	ShardName string
}

type reconciler struct{ Inputs }

// New returns the controller. Its keys are APIExportEndpointSlices.
func New(in Inputs) *controller.Controller {
	r := &reconciler{in}
	c := controller.New("apiexportendpointslice", 2, r.reconcile)
	c.Watch(in.Set.APIExportEndpointSlices.Informer)
	c.WatchMapped(in.Set.APIExports.Informer, func(obj runtime.Object) []informers.Key {
		return r.slicesOf(obj.(*apisv1alpha2.APIExport).Name)
	})
	// One of very many bindings changes nothing: the first one and the last one do.
	in.Set.APIBindings.AddHandler(func(old, obj runtime.Object) {
		for _, b := range []runtime.Object{old, obj} {
			b, ok := b.(*apisv1alpha2.APIBinding)
			if !ok || b == nil || b.Spec.Reference.Export == nil {
				continue
			}
			for _, key := range r.slicesOf(b.Spec.Reference.Export.Name) {
				if r.outdated(key, b) {
					c.Enqueue(key)
				}
			}
		}
	})
	c.WatchMapped(in.Set.Shards.Informer, controller.Every(in.Set.APIExportEndpointSlices.Informer))
	c.WatchMapped(in.Set.Partitions.Informer, func(obj runtime.Object) []informers.Key {
		p := obj.(*topologyv1alpha1.Partition)
		all, err := in.Set.APIExportEndpointSlices.List(logicalcluster.Of(p))
		if err != nil {
			return nil
		}
		var keys []informers.Key
		for _, s := range all {
			if s.Spec.Partition == p.Name {
				keys = append(keys, informers.Key{Cluster: logicalcluster.Of(s), Name: s.Name})
			}
		}
		return keys
	})
	return c
}

func (r *reconciler) slicesOf(export string) []informers.Key {
	return controller.KeysOf(r.Exports.SlicesNaming(export))
}

// outdated tells whether a slice may have to change because of a binding.
func (r *reconciler) outdated(key informers.Key, b *apisv1alpha2.APIBinding) bool {
	slice, err := r.Set.APIExportEndpointSlices.Get(key.Cluster, "", key.Name)
	if err != nil || b.Status.APIExportClusterName == "" {
		return false
	}
	cluster, ok := r.Exports.Cluster(key.Cluster, slice.Spec.Export.Path)
	if !ok || string(cluster) != b.Status.APIExportClusterName {
		return false
	}
	if selected, err := r.selected(slice.Status.ShardSelector); err != nil || !selected {
		return false // whoever binds
	}
	return r.Exports.HasBindings(cluster, slice.Spec.Export.Name) != (len(slice.Status.Endpoints) > 0)
}

// selected tells whether a selector selects this shard.
func (r *reconciler) selected(selector string) (bool, error) {
	parsed, err := labels.Parse(selector)
	if err != nil || parsed.Empty() {
		return err == nil, err
	}
	shard, err := r.Set.Shards.Get(logicalcluster.Root, "", r.ShardName)
	return err == nil && parsed.Matches(labels.Set(shard.Labels)), err
}

// partition returns the selector of the partition of a slice, and what is wrong with it.
func (r *reconciler) partition(cluster logicalcluster.Name, name string) (selector string, problem error) {
	if name == "" {
		return "", nil
	}
	p, err := r.Set.Partitions.Get(cluster, "", name)
	if err != nil {
		return "", fmt.Errorf("there is no Partition %q in this workspace", name)
	}
	if p.Spec.Selector == nil {
		return "", nil
	}
	parsed, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
	if err != nil {
		return "", fmt.Errorf("the selector of the Partition %q: %w", name, err)
	}
	return parsed.String(), nil
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	slice, err := r.Set.APIExportEndpointSlices.Get(key.Cluster, "", key.Name)
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
	err = r.Slices.Update(ctx, key.Name, &apisv1alpha1.APIExportEndpointSlice{}, func(obj runtime.Object) error {
		obj.(*apisv1alpha1.APIExportEndpointSlice).Status = *status
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// describe brings a status up to date.
func (r *reconciler) describe(from logicalcluster.Name, slice *apisv1alpha1.APIExportEndpointSlice, status *apisv1alpha1.APIExportEndpointSliceStatus) error {
	reference := slice.Spec.Export
	export, err := r.Exports.Find(from, apisv1alpha2.ExportBindingReference{Path: reference.Path, Name: reference.Name})
	if apierrors.IsNotFound(err) {
		scheduling.SetCondition(&status.Conditions, corev1alpha1.Condition{
			Type: apisv1alpha1.APIExportEndpointSliceExportValid, Status: metav1.ConditionFalse, Severity: "Error",
			Reason: apisv1alpha2.ReasonAPIExportNotFound, Message: err.Error(),
		})
		return nil
	}
	if err != nil {
		return err
	}
	scheduling.SetCondition(&status.Conditions, corev1alpha1.Condition{Type: apisv1alpha1.APIExportEndpointSliceExportValid, Status: metav1.ConditionTrue})
	valid := corev1alpha1.Condition{Type: apisv1alpha1.APIExportEndpointSlicePartitionValid, Status: metav1.ConditionTrue}
	selector, problem := r.partition(from, slice.Spec.Partition)
	if problem != nil {
		valid.Status, valid.Severity, valid.Reason, valid.Message = metav1.ConditionFalse, "Error", apisv1alpha1.ReasonPartitionInvalidReference, problem.Error()
	}
	scheduling.SetCondition(&status.Conditions, valid)
	if problem != nil {
		return nil // what is served goes on until it is known what else is wanted
	}
	status.ShardSelector = selector
	selected, err := r.selected(selector)
	if err != nil {
		return err
	}
	cluster := logicalcluster.Of(export)
	status.Endpoints = nil
	if !selected || !r.Exports.HasBindings(cluster, export.Name) {
		return nil
	}
	shard, err := r.Set.Shards.Get(logicalcluster.Root, "", r.ShardName)
	if err != nil {
		return fmt.Errorf("the shard of this server: %w", err)
	}
	status.Endpoints = []apisv1alpha1.APIExportEndpoint{{URL: shard.Spec.VirtualWorkspaceURL + apiexport.Path(cluster, export.Name)}}
	return nil
}
