package claims

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// RequiredLabels returns the labels that an object of a cluster must have, whatever labels of claims it has now. All components that
// label objects use it; it considers all current bindings of the cluster. A binding with invalid claims does not block others:
// its status reports the error.
func RequiredLabels(all *exports.Exports, cluster logicalcluster.Name, resource schema.GroupResource,
	object map[string]string) map[string]string {
	bindings := all.BindingsIn(cluster)
	if len(bindings) == 0 && !labelled(object) {
		return object
	}
	claimed, _ := Labels(resource, all.Identity(cluster, resource), object, bindings, exportsOf(all))
	return Relabel(object, claimed)
}

// RequiredLabelsOfBinding is RequiredLabels for a binding of a cluster, which is always visible to its export.
func RequiredLabelsOfBinding(all *exports.Exports, cluster logicalcluster.Name, binding *apisv1alpha2.APIBinding) map[string]string {
	claimed, _ := LabelsOfBinding(binding, all.BindingsIn(cluster), exportsOf(all))
	return Relabel(binding.Labels, claimed)
}

func labelled(object map[string]string) bool {
	for key := range object {
		if strings.HasPrefix(key, apisv1alpha2.ClaimedLabelPrefix) {
			return true
		}
	}
	return false
}

// exportsOf returns the function that finds the exports of bindings among those of all clusters.
func exportsOf(all *exports.Exports) ExportOf {
	return func(b *apisv1alpha2.APIBinding) (Export, bool) {
		reference := b.Spec.Reference.Export
		if reference == nil {
			return Export{}, false
		}
		cluster, ok := all.Cluster(logicalcluster.Of(b), reference.Path)
		return Export{cluster, reference.Name}, ok
	}
}
