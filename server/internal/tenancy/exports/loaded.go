package exports

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Elsewhere knows the clusters of other shards.
type Elsewhere interface {
	// Here reports whether this shard has a cluster.
	Here(cluster logicalcluster.Name) bool
	// Loaded reports whether this shard has everything that the shard of a cluster offers of it: exports, policies, webhooks and roles.
	Loaded(cluster logicalcluster.Name) bool
	// Deleted reports whether an export of another shard was deleted that something here binds.
	Deleted(cluster logicalcluster.Name, export string) bool
}

// Share makes exports of other shards count as unknown, and not as deleted, while they are not loaded. It must be called before the first
// request.
func (e *Exports) Share(elsewhere Elsewhere) { e.elsewhere = elsewhere }

// Unloaded returns an error if a resource is from an export of another shard that is not loaded. What the provider enforces is not known
// then, so the resource must not be served. A deleted export enforces nothing, as on this shard.
func (e *Exports) Unloaded(source Source) error {
	if e.elsewhere == nil || e.elsewhere.Here(source.Cluster) {
		return nil
	}
	if e.elsewhere.Loaded(source.Cluster) {
		if _, err := e.Get(source.Cluster, source.Export); err == nil || e.elsewhere.Deleted(source.Cluster, source.Export) {
			return nil
		}
	}
	err := apierrors.NewServiceUnavailable(fmt.Sprintf("the provider of this API, logical cluster %s, is on another shard, and its "+
		"APIExport %q is not loaded: try again", source.Cluster, source.Export))
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// Arriving reports whether the export of a binding is on another shard, and not known to be usable yet: the shard reads its schemas when
// the first workspace binds it.
func (e *Exports) Arriving(b *apisv1alpha2.APIBinding) bool {
	if e.elsewhere == nil || b.Spec.Reference.Export == nil {
		return false
	}
	valid := func(c corev1alpha1.Condition) bool {
		return c.Type == apisv1alpha2.APIBindingExportValid && c.Status == metav1.ConditionTrue
	}
	from, ok := e.Cluster(logicalcluster.Of(b), b.Spec.Reference.Export.Path)
	return ok && !e.elsewhere.Here(from) && !slices.ContainsFunc(b.Status.Conditions, valid)
}

// CheckLoaded is Unloaded for a resource of a cluster.
func (e *Exports) CheckLoaded(cluster logicalcluster.Name, resource schema.GroupResource) error {
	if e.elsewhere == nil {
		return nil
	}
	source, ok := e.Source(cluster, resource)
	if !ok {
		return nil
	}
	return e.Unloaded(source)
}
