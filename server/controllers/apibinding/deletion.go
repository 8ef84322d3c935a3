package apibinding

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/claims"
	"github.com/kcplane/kcp/server/conditions"
	"github.com/kcplane/kcp/server/controllers/instances"
	"github.com/kcplane/kcp/server/customresources"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// finalize deletes the objects of what was bound, and lets the binding go when there are none.
func (r *reconciler) finalize(ctx context.Context, key informers.Key, binding *apisv1alpha2.APIBinding) error {
	if !slices.Contains(binding.Finalizers, apisv1alpha2.APIBindingFinalizer) {
		return nil
	}
	var remaining []string
	for _, resource := range binding.Status.BoundResources {
		if len(resource.StorageVersions) == 0 || r.succeeded(key, binding, resource) {
			continue
		}
		left, err := r.deleteInstances(ctx, key, resource)
		if err != nil {
			return fmt.Errorf("deleting the objects of %s: %w", resource.Resource, err)
		}
		if left > 0 {
			remaining = append(remaining, fmt.Sprintf("%d %s", left, schema.GroupResource{Group: resource.Group, Resource: resource.Resource}))
		}
	}
	if len(remaining) > 0 {
		status := binding.Status.DeepCopy()
		conditions.Set(&status.Conditions, corev1alpha1.Condition{
			Type: apisv1alpha2.APIBindingResourceDeleteSuccess, Status: metav1.ConditionFalse, Severity: "Error",
			Reason: apisv1alpha2.ReasonSomeFinalizersRemain, Message: "waiting for the finalizers of " + strings.Join(remaining, ", "),
		})
		r.controller.EnqueueAfter(key, remainingInterval)
		return r.commit(ctx, binding, status)
	}
	// A binding that is being deleted does not label any more.
	for i := range binding.Status.AppliedPermissionClaims {
		r.answers.add(key, claims.KeyOf(&binding.Status.AppliedPermissionClaims[i].PermissionClaim))
	}
	for claim := range r.answers.take(key) {
		if err := r.relabel(ctx, key, claim); err != nil {
			r.answers.add(key, claim)
			return err
		}
	}
	return r.Bindings.Release(ctx, binding.Name, binding.UID, apisv1alpha2.APIBindingFinalizer, func() runtime.Object { return &apisv1alpha2.APIBinding{} })
}

// succeeded tells whether another binding of the cluster goes on with a resource: the same schema, under the same identity.
func (r *reconciler) succeeded(key informers.Key, binding *apisv1alpha2.APIBinding, resource apisv1alpha2.BoundAPIResource) bool {
	for _, other := range r.Exports.BindingsIn(key.Cluster) {
		if other.Name == binding.Name || other.DeletionTimestamp != nil || other.Spec.Reference.Export == nil {
			continue
		}
		export, err := r.Exports.Find(key.Cluster, *other.Spec.Reference.Export)
		if err != nil || export.Status.IdentityHash != resource.Schema.IdentityHash {
			continue
		}
		offers, err := r.wanted(logicalcluster.Of(export), export)
		if err == nil && slices.ContainsFunc(offers, func(o offer) bool {
			return !o.virtual && o.resource.Group == resource.Group && o.resource.Resource == resource.Resource && string(o.schema.UID) == resource.Schema.UID
		}) {
			return true
		}
	}
	return false
}

// deleteInstances deletes the objects of a resource, and returns how many are left.
func (r *reconciler) deleteInstances(ctx context.Context, key informers.Key, resource apisv1alpha2.BoundAPIResource) (int, error) {
	version := func() string {
		for _, i := range r.Serves(key.Cluster) {
			if i.Key() == customresources.ResourceName(resource.Resource, resource.Group) && i.Binding != "" && i.Identity == resource.Schema.IdentityHash {
				return instances.Version(i.CRD)
			}
		}
		return "" // it was never served, or a definition of the cluster has come before
	}
	gvr := schema.GroupVersionResource{Group: resource.Group, Version: version(), Resource: resource.Resource}
	return instances.DeleteOwn(ctx, r.Metadata, gvr, func() bool { return version() != "" })
}
