package apibinding

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

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
			remaining = append(remaining, r.describe(key, schema.GroupResource{Group: resource.Group, Resource: resource.Resource}, left))
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
	r.held.forget(key)
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

// describe returns what is left of a resource.
func (r *reconciler) describe(key informers.Key, resource schema.GroupResource, left int) string {
	if until := r.held.until(key, resource); !until.IsZero() {
		return fmt.Sprintf("%d %s (the API refuses to remove them; they do not count from %s on)", left, resource, until.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%d %s", left, resource)
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

// deleteInstances deletes the objects of a resource, and returns how many are left. It asks the API first: rules of the provider hear of
// it. What they refuse, or what the API does not reach, is deleted all the same. Finalizers count if clients can remove them: those of
// objects that are stored as the workspace is served them, unless their removal is refused for long.
func (r *reconciler) deleteInstances(ctx context.Context, key informers.Key, resource apisv1alpha2.BoundAPIResource) (int, error) {
	of := schema.GroupResource{Group: resource.Group, Resource: resource.Resource}
	served := func() (customresources.Installed, bool) {
		for _, i := range r.Serves(key.Cluster) {
			if i.Key() == customresources.ResourceName(resource.Resource, resource.Group) {
				return i, i.IsSystem() || (i.Binding != "" && i.Identity == resource.Schema.IdentityHash)
			}
		}
		return customresources.Installed{}, false // it was never served, or a definition of the cluster has come before
	}
	installed, ok := served()
	version, scope := "", apiextensionsv1.ResourceScope("")
	if ok {
		if installed.IsSystem() {
			return 0, nil // not the binding's
		}
		version, scope = instances.Version(installed.CRD), installed.CRD.Spec.Scope
	}
	if version != "" {
		err := instances.Ask(ctx, func(ctx context.Context) error {
			_, err := instances.DeleteOwn(ctx, r.Metadata, of.WithVersion(version), func() bool { _, ok := served(); return ok })
			return err
		})
		if err != nil {
			klog.FromContext(ctx).Info("Deleting what was bound without the API, which fails", "cluster", key.Cluster, "binding", key.Name, "resource", of, "err", err)
		}
	}
	trying, cancel := context.WithTimeout(ctx, instances.Asking)
	defer cancel()
	waits := r.held.waits(key, of, func(u *unstructured.Unstructured) error {
		return r.removeFinalizers(trying, of.WithVersion(version), u)
	})
	left, err := r.Remains.Delete(ctx, of, resource.Schema.IdentityHash, func(u *unstructured.Unstructured) bool {
		return version != "" && (u.GetNamespace() != "") == (scope == apiextensionsv1.NamespaceScoped) && waits(u)
	})
	if err != nil {
		return 0, err
	}
	// The resource had another identity, if a server followed an export that was made again.
	identities, err := r.Remains.Identities(ctx, of)
	if err != nil {
		return 0, err
	}
	for _, identity := range identities {
		if identity == resource.Schema.IdentityHash {
			continue
		}
		if _, err := r.Remains.Delete(ctx, of, identity, func(*unstructured.Unstructured) bool { return false }); err != nil {
			return 0, err
		}
	}
	return left, nil
}
