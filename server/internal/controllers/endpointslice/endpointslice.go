// Package endpointslice lists in every endpoint slice the URLs of the objects of an export, for each shard of the slice's partition with
// consumers. Slices of APIExports are for providers, and show the objects of all consumers. Slices of ClusterCachedResources are for
// consumers, and show the objects that the provider publishes.
package endpointslice

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Inputs of both controllers. Storage reaches the cluster in each call's context.
type Inputs struct {
	Set     *informers.Set
	Exports *exports.Exports
	Cached  *cachedresources.Resources
	// Slices stores the slices of the kind.
	Slices storage.Objects
	// ShardName is the name of this shard.
	ShardName string
	// Others are the other shards; nil for a single shard.
	Others Shards
}

// status is the status of slices of both kinds.
type status = apisv1alpha1.APIExportEndpointSliceStatus

// object is a slice.
type object interface {
	runtime.Object
	metav1.Object
}

// kind of slices.
type kind[T object] struct {
	name   string
	lister informers.Lister[T]
	// naming returns the slices of all clusters that refer to an export by this name.
	naming func(export string) []T
	// spec and status are what the kinds have in common. A change of the status changes the object.
	spec   func(T) apisv1alpha1.APIExportEndpointSliceSpec
	status func(T) *status
	// empty returns a new object.
	empty func() T
	// check returns the export of a slice, nil if it is missing, and sets conditions for the objects that the slice refers to.
	check func(slice T, conditions *[]corev1alpha1.Condition) (*apisv1alpha2.APIExport, error)
	// path of the view that a slice lists.
	path func(slice T, export *apisv1alpha2.APIExport) string
}

type reconciler[T object] struct {
	Inputs
	kind[T]
}

// controller returns the controller of a kind. Its keys are slices.
func (k kind[T]) controller(in Inputs) *runner.Controller {
	r := &reconciler[T]{in, k}
	c := runner.New(k.name, 2, r.reconcile)
	c.Watch(k.lister.Informer)
	if in.Others != nil {
		c.WatchMappedForAll(k.lister.Informer, func(obj runtime.Object) []informers.Key { return runner.KeysOf([]T{obj.(T)}) })
	}
	c.WatchMappedForAll(in.Set.APIExports.Informer, func(obj runtime.Object) []informers.Key {
		return runner.KeysOf(k.naming(obj.(*apisv1alpha2.APIExport).Name))
	})
	// Only the first and the last of very many bindings change a slice.
	in.Set.APIBindings.AddHandler(func(old, obj runtime.Object) {
		for _, b := range []runtime.Object{old, obj} {
			b, ok := b.(*apisv1alpha2.APIBinding)
			if !ok || b == nil || b.Spec.Reference.Export == nil {
				continue
			}
			for _, slice := range k.naming(b.Spec.Reference.Export.Name) {
				if r.outdated(slice, b) {
					c.Enqueue(informers.Key{Cluster: logicalcluster.Of(slice), Name: slice.GetName()})
				}
			}
		}
	})
	c.WatchMappedForAll(in.Set.Shards.Informer, runner.AllOf(k.lister.Informer))
	c.WatchMapped(in.Set.Partitions.Informer, func(obj runtime.Object) []informers.Key {
		p := obj.(*topologyv1alpha1.Partition)
		all, _ := k.lister.List(logicalcluster.Of(p)) // the index exists
		return runner.KeysOf(slices.DeleteFunc(all, func(slice T) bool { return k.spec(slice).Partition != p.Name }))
	})
	return c
}

// outdated reports whether a slice may have to change because of a binding.
func (r *reconciler[T]) outdated(slice T, b *apisv1alpha2.APIBinding) bool {
	export, status := r.spec(slice).Export, r.status(slice)
	cluster, ok := r.Exports.Cluster(logicalcluster.Of(slice), export.Path)
	if !ok || b.Status.APIExportClusterName == "" || string(cluster) != b.Status.APIExportClusterName {
		return false
	}
	if selected, err := r.selected(status.ShardSelector); err != nil || !selected {
		return false // its bindings do not matter
	}
	if r.Others != nil {
		listed, wanted, err := r.consumption(slice)
		return err != nil || listed != wanted
	}
	return r.Exports.HasBindings(cluster, export.Name) != (len(status.Endpoints) > 0)
}

// selected reports whether a selector selects this shard.
func (r *reconciler[T]) selected(selector string) (bool, error) {
	parsed, err := labels.Parse(selector)
	if err != nil || parsed.Empty() {
		return err == nil, err
	}
	shard, err := r.Set.Shards.Get(logicalcluster.Root, "", r.ShardName)
	return err == nil && parsed.Matches(labels.Set(shard.Labels)), err
}

// partition returns the selector of the partition of a slice, or why the partition cannot be used.
func (r *reconciler[T]) partition(cluster logicalcluster.Name, name string) (selector string, problem error) {
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

func (r *reconciler[T]) reconcile(ctx context.Context, key informers.Key) error {
	slice, err := r.lister.GetLocal(key.Cluster, "", key.Name)
	if apierrors.IsNotFound(err) && r.Others != nil {
		return r.consume(ctx, key)
	}
	if err != nil || slice.GetDeletionTimestamp() != nil {
		return runner.IgnoreNotFound(err)
	}
	wanted := r.status(slice).DeepCopy()
	if err := r.describe(slice, wanted); err != nil {
		return err
	}
	err = r.Slices.Update(ctx, key.Name, r.empty(), func(obj runtime.Object) error {
		*r.status(obj.(T)) = *wanted
		return runner.Same(obj.(T), slice)
	})
	return runner.IgnoreNotFound(err)
}

// describe brings a status up to date.
func (r *reconciler[T]) describe(slice T, status *status) error {
	export, err := r.check(slice, &status.Conditions)
	if err != nil || export == nil {
		return err
	}
	selector, problem := r.partition(logicalcluster.Of(slice), r.spec(slice).Partition)
	note(&status.Conditions, apisv1alpha1.APIExportEndpointSlicePartitionValid, apisv1alpha1.ReasonPartitionInvalidReference, problem)
	if problem != nil {
		return nil // the URLs stay until the partition is valid
	}
	status.ShardSelector = selector
	if status.Endpoints, err = r.others(slice, export, selector); err != nil {
		return err
	}
	selected, err := r.selected(selector)
	if err != nil || !selected || !r.Exports.HasBindings(logicalcluster.Of(export), export.Name) {
		return err
	}
	shard, err := r.Set.Shards.Get(logicalcluster.Root, "", r.ShardName)
	if err != nil {
		return fmt.Errorf("the shard of this server: %w", err)
	}
	status.Endpoints = append(status.Endpoints, apisv1alpha1.APIExportEndpoint{URL: r.url(shard, slice, export)})
	sortEndpoints(status.Endpoints)
	return nil
}

// note sets a condition: it is true if there is no problem.
func note(all *[]corev1alpha1.Condition, kind, reason string, problem error) {
	conditions.Set(all, conditions.FromError(kind, reason, problem))
}
