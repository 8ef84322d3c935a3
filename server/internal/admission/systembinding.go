package admission

import (
	"context"
	"slices"

	"k8s.io/apiserver/pkg/admission"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// systemBindings refuses to delete bindings that every cluster has for as long as it exists: the server serves these APIs without a binding
// too.
type systemBindings struct {
	*admission.Handler
	config Config
}

var _ admission.ValidationInterface = systemBindings{}

func newSystemBindings(config Config) systemBindings {
	return systemBindings{handles(admission.Delete), config}
}

// Validate implements admission.ValidationInterface.
func (s systemBindings) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	name := deletedName(a)
	if !isAPIBinding(a) || name == "" {
		return nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	s.config.Set.APIBindings.Current(ctx, cluster)
	binding, err := s.config.Set.APIBindings.Get(cluster, "", name)
	if err != nil || binding.Spec.Reference.Export == nil {
		return nil // a binding that informers do not have yet is not one that the cluster was created with
	}
	of, ok, err := s.config.cluster(ctx, cluster, binding.Spec.Reference.Export.Path)
	if err != nil {
		return err
	}
	if !ok || !exports.Everywhere(of, binding.Spec.Reference.Export.Name) {
		return nil
	}
	another := slices.ContainsFunc(s.config.Exports.BindingsIn(cluster), func(b *apisv1alpha2.APIBinding) bool {
		return b.Name != binding.Name && b.DeletionTimestamp == nil && s.config.Exports.Binds(b, of, binding.Spec.Reference.Export.Name)
	})
	if another {
		return nil
	}
	s.config.Set.LogicalClusters.Current(ctx, cluster)
	lc, err := s.config.Set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil || lc.DeletionTimestamp != nil {
		return nil
	}
	return forbidden(a, "every workspace binds %s:%s: its last APIBinding cannot be deleted", binding.Spec.Reference.Export.Path,
		binding.Spec.Reference.Export.Name)
}
