package apibinding

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// maintained reports whether the server keeps a binding equal to what its export and its workspace type specify.
func maintained(b *apisv1alpha2.APIBinding) bool {
	return b.Annotations[apisv1alpha2.DefaultAPIBindingLifecycleAnnotation] == string(tenancyv1alpha1.APIBindingLifecycleModeMaintain)
}

// maintain accepts the current claims of the export, if the binding is maintained.
func (r *reconciler) maintain(ctx context.Context, binding *apisv1alpha2.APIBinding) (changed bool, err error) {
	if !maintained(binding) || binding.Spec.Reference.Export == nil {
		return false, nil
	}
	export, err := r.Exports.Find(logicalcluster.Of(binding), *binding.Spec.Reference.Export)
	if err != nil {
		return false, nil // bind sets a condition
	}
	wanted := exports.AcceptAll(export)
	if equality.Semantic.DeepEqual(binding.Spec.PermissionClaims, wanted) {
		return false, nil
	}
	err = r.Bindings.Update(ctx, binding.Name, &apisv1alpha2.APIBinding{}, func(obj runtime.Object) error {
		live := obj.(*apisv1alpha2.APIBinding)
		if err := runner.Same(live, binding); err != nil {
			return err
		}
		if maintained(live) && !equality.Semantic.DeepEqual(live.Spec.PermissionClaims, wanted) {
			live.Spec.PermissionClaims = wanted
			live.Generation++
		}
		return nil
	})
	return true, runner.IgnoreNotFound(err)
}

// recreate creates a deleted binding again if its workspace type maintains it, or every cluster has it.
func (r *reconciler) recreate(ctx context.Context, key informers.Key) error {
	lc, err := r.Set.LogicalClusters.Get(key.Cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil || lc.DeletionTimestamp != nil {
		return nil
	}
	for _, b := range r.Defaults(lc) {
		of, _ := r.Exports.Cluster(key.Cluster, b.Spec.Reference.Export.Path)
		if (b.Name != key.Name || !maintained(b)) && !exports.Everywhere(of, b.Spec.Reference.Export.Name) {
			continue
		}
		if err := r.Bindings.Create(ctx, b.Name, b); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
