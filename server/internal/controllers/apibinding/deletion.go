package apibinding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/instances"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// finalize deletes the objects of the bound resources, and removes the finalizer of the binding when none remain. The binding must be the
// stored one: the next binding of the same name has the same resources.
func (r *reconciler) finalize(ctx context.Context, key informers.Key, binding *apisv1alpha2.APIBinding) error {
	if !slices.Contains(binding.Finalizers, apisv1alpha2.APIBindingFinalizer) {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, instances.APITimeout)
	defer cancel()
	var remaining []string
	for _, resource := range binding.Status.BoundResources {
		if len(resource.StorageVersions) == 0 || r.hasSuccessor(key, binding, resource) {
			continue
		}
		left, err := r.deleteInstances(ctx, asking, key, resource)
		if err != nil {
			return fmt.Errorf("deleting the objects of %s: %w", resource.Resource, err)
		}
		if left > 0 {
			remaining = append(remaining, r.describe(key, schema.GroupResource{Group: resource.Group, Resource: resource.Resource}, left))
		}
	}
	if len(remaining) > 0 {
		status := binding.Status.DeepCopy()
		conditions.Set(&status.Conditions, corev1alpha1.Condition{
			Type: apisv1alpha2.APIBindingResourceDeleteSuccess, Status: metav1.ConditionFalse, Severity: "Error",
			Reason: apisv1alpha2.ReasonSomeFinalizersRemain, Message: "waiting for the finalizers of " + strings.Join(remaining, ", "),
		})
		age := r.Clock.Since(binding.DeletionTimestamp.Time)
		r.controller.EnqueueAfter(key, min(max(age/10, remainingInterval), maxInterval))
		return r.commit(ctx, binding, status)
	}
	r.refusals.forget(key)
	// A binding that is being deleted does not label objects any more.
	for i := range binding.Status.AppliedPermissionClaims {
		r.claimChanges.add(key, claims.KeyOf(&binding.Status.AppliedPermissionClaims[i].PermissionClaim))
	}
	for claim := range r.claimChanges.take(key) {
		if err := r.relabel(ctx, key, claim); err != nil {
			r.claimChanges.add(key, claim)
			return err
		}
	}
	return r.Bindings.Release(ctx, binding.Name, binding.UID, apisv1alpha2.APIBindingFinalizer,
		func() runtime.Object { return &apisv1alpha2.APIBinding{} })
}

// describe returns how many objects of a resource remain, and why.
func (r *reconciler) describe(key informers.Key, resource schema.GroupResource, left int) string {
	if until := r.refusals.until(key, resource); !until.IsZero() {
		return fmt.Sprintf("%d %s (the API refuses to remove them; they do not count from %s on)", left, resource,
			until.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%d %s", left, resource)
}

// hasSuccessor reports whether another binding of the cluster continues a resource, with the same schema and identity.
func (r *reconciler) hasSuccessor(key informers.Key, binding *apisv1alpha2.APIBinding, resource apisv1alpha2.BoundAPIResource) bool {
	for _, other := range r.Exports.BindingsIn(key.Cluster) {
		if other.Name == binding.Name || other.DeletionTimestamp != nil || other.Spec.Reference.Export == nil {
			continue
		}
		export, err := r.Exports.Find(key.Cluster, *other.Spec.Reference.Export)
		if err != nil || export.Status.IdentityHash != resource.Schema.IdentityHash {
			continue
		}
		offers, err := r.offersOf(logicalcluster.Of(export), export)
		if err == nil && slices.ContainsFunc(offers, func(o offer) bool {
			return !o.virtual && o.resource.Group == resource.Group && o.resource.Resource == resource.Resource &&
				string(o.schema.UID) == resource.Schema.UID
		}) {
			return true
		}
	}
	return false
}

// errNotServed is why the finalizers of an object cannot be removed.
var errNotServed = errors.New("the resource is not served")

// deleteInstances deletes the objects of a resource, and returns how many remain. It deletes through the API first, until asking ends, so
// that admission rules of the provider see the deletions. It then deletes in storage the objects that these rules refuse to delete, or that
// the API does not reach. It waits for finalizers only if clients can remove them: if the workspace serves the objects as they are stored,
// and unless the removal is refused for long.
func (r *reconciler) deleteInstances(ctx, asking context.Context, key informers.Key, resource apisv1alpha2.BoundAPIResource) (int, error) {
	of := schema.GroupResource{Group: resource.Group, Resource: resource.Resource}
	installed, ok := r.serves(key, resource)
	if ok && installed.IsSystem() {
		return 0, nil // the objects do not belong to the binding
	}
	version := ""
	if ok {
		version = instances.Version(installed.CRD)
	}
	if version != "" {
		_, err := instances.DeleteOwn(asking, r.Metadata, of.WithVersion(version), func() bool { _, ok := r.serves(key, resource); return ok })
		if err != nil {
			decisionlog.ForFailure(ctx, key.Cluster).Info("Deleting bound objects from the storage because deleting through the API failed",
				decisionlog.Cluster, key.Cluster, decisionlog.Name, key.Name, decisionlog.Resource, of, decisionlog.Reason, err)
		}
	}
	trying, cancel := context.WithTimeout(ctx, instances.APITimeout)
	defer cancel()
	waits := r.refusals.blocks(key, of, func(u *unstructured.Unstructured) error {
		if !ok { // it was never served, or a definition of the cluster has its name
			return errNotServed
		}
		return r.tryRemoveFinalizers(trying, of.WithVersion(version), u)
	})
	left, err := r.Remains.Delete(ctx, of, resource.Schema.IdentityHash, func(u *unstructured.Unstructured) bool {
		return (!ok || version != "" && installed.Reaches(u.GetNamespace())) && waits(u)
	})
	if err != nil || left > 0 {
		return left, err
	}
	return 0, r.deleteFormer(ctx, key, of, resource.Schema.IdentityHash)
}

// serves returns the resource that the cluster serves under the name of a bound one, and whether it belongs to the server or a binding.
func (r *reconciler) serves(key informers.Key, resource apisv1alpha2.BoundAPIResource) (customresources.Installed, bool) {
	for _, i := range r.Serves(key.Cluster) {
		if i.Key() == customresources.ResourceName(resource.Resource, resource.Group) {
			return i, i.IsSystem() || (i.Binding != "" && i.Identity == resource.Schema.IdentityHash)
		}
	}
	return customresources.Installed{}, false
}

// deleteFormer deletes the objects of a resource under other identities, which clients cannot reach. Earlier versions of the server
// followed exports that were recreated.
func (r *reconciler) deleteFormer(ctx context.Context, key informers.Key, of schema.GroupResource, identity string) error {
	identities, err := r.Remains.Identities(ctx, of)
	if err != nil {
		return err
	}
	current := sets.New(identity)
	for _, other := range r.Exports.BindingsIn(key.Cluster) {
		for _, b := range other.Status.BoundResources {
			if other.Name != key.Name && b.Group == of.Group && b.Resource == of.Resource {
				current.Insert(b.Schema.IdentityHash)
			}
		}
	}
	for _, former := range identities {
		if current.Has(former) {
			continue
		}
		if _, err := r.Remains.Delete(ctx, of, former, func(*unstructured.Unstructured) bool { return false }); err != nil {
			return err
		}
	}
	return nil
}
