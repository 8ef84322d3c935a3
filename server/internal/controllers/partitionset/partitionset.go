// Package partitionset divides the shards by the labels that each PartitionSet lists, into one Partition for each combination of values.
package partitionset

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	resource = topologyv1alpha1.SchemeGroupVersion.WithResource("partitions")
	setKind  = topologyv1alpha1.SchemeGroupVersion.WithKind("PartitionSet")
)

// Inputs of the controller. Client and storage reach the cluster in each call's context.
type Inputs struct {
	Set     *informers.Set
	Dynamic dynamic.Interface
	// Sets stores PartitionSets.
	Sets storage.Objects
}

type reconciler struct{ Inputs }

// New returns the controller. Its keys are PartitionSets.
func New(in Inputs) *runner.Controller {
	r := &reconciler{in}
	c := runner.New("partitionset", 2, r.reconcile)
	c.Watch(in.Set.PartitionSets.Informer)
	c.WatchMapped(in.Set.Partitions.Informer, func(obj runtime.Object) []informers.Key {
		p := obj.(*topologyv1alpha1.Partition)
		if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == setKind.Kind {
			return []informers.Key{{Cluster: logicalcluster.Of(p), Name: owner.Name}}
		}
		return nil
	})
	c.WatchMappedForAll(in.Set.Shards.Informer, runner.AllOf(in.Set.PartitionSets.Informer))
	return c
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	set, err := r.Set.PartitionSets.Get(key.Cluster, "", key.Name)
	if err != nil || set.DeletionTimestamp != nil {
		return runner.IgnoreNotFound(err)
	}
	shards, err := r.Set.Shards.List(logicalcluster.Root)
	if err != nil {
		return err
	}
	wanted, problem := divide(&set.Spec, shards)
	valid := conditions.FromError(topologyv1alpha1.PartitionSetValid, topologyv1alpha1.ReasonInvalidSelector, problem)
	if problem != nil {
		return r.commit(ctx, set, set.Status.Count, valid)
	}
	err = r.settle(ctx, set, wanted)
	ready := conditions.FromError(topologyv1alpha1.PartitionsReady, topologyv1alpha1.ReasonErrorGeneratingPartitions, err)
	if commitErr := r.commit(ctx, set, len(wanted), valid, ready); err == nil {
		err = commitErr
	}
	return err
}

// settle creates the missing partitions of a set, and deletes those that are not wanted any more. It lists the stored partitions, because
// the informer may not have a new partition yet, and a second one would be created.
func (r *reconciler) settle(ctx context.Context, set *topologyv1alpha1.PartitionSet, wanted []partition) error {
	client := r.Dynamic.Resource(resource)
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing partitions: %w", err)
	}
	for i := range list.Items {
		p := &topologyv1alpha1.Partition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, p); err != nil {
			return err
		}
		if !metav1.IsControlledBy(p, set) || p.DeletionTimestamp != nil || take(&wanted, p.Spec.Selector) {
			continue
		}
		if err := client.Delete(ctx, p.Name, *metav1.NewPreconditionDeleteOptions(string(p.UID))); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the partition %s: %w", p.Name, err)
		}
	}
	for _, w := range wanted {
		p := &topologyv1alpha1.Partition{
			TypeMeta: metav1.TypeMeta{APIVersion: resource.GroupVersion().String(), Kind: "Partition"},
			ObjectMeta: metav1.ObjectMeta{
				GenerateName:    w.prefix(set.Name),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, setKind)},
			},
			Spec: topologyv1alpha1.PartitionSpec{Selector: w.selector},
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			return err
		}
		if _, err := client.Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the partition of %v: %w", w.values, err)
		}
	}
	return nil
}

// commit writes the status of a set, if it has changed.
func (r *reconciler) commit(ctx context.Context, set *topologyv1alpha1.PartitionSet, count int, judged ...corev1alpha1.Condition) error {
	err := r.Sets.Update(ctx, set.Name, &topologyv1alpha1.PartitionSet{}, func(obj runtime.Object) error {
		live := obj.(*topologyv1alpha1.PartitionSet)
		live.Status.Count = count
		for _, c := range judged {
			conditions.Set(&live.Status.Conditions, c)
		}
		return runner.Same(live, set)
	})
	return runner.IgnoreNotFound(err)
}
