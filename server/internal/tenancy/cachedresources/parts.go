package cachedresources

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Publication is what a ClusterCachedResource of another shard publishes. Equal values have the same objects.
type Publication struct {
	Shard    string
	Cluster  logicalcluster.Name
	Resource schema.GroupVersionResource
	Identity string
	// Kind is that of the objects.
	Kind string
}

// Part is one of the objects that determine the source of a virtual resource.
type Part struct {
	resource string
	cluster  logicalcluster.Name
	name     string
}

// String returns a string that is invalid as the name of a logical cluster.
func (p Part) String() string { return p.resource + "/" + string(p.cluster) + "/" + p.name }

// ExportPart is an export that publishes objects.
func ExportPart(cluster logicalcluster.Name, name string) Part { return Part{byExport, cluster, name} }

// Parts returns the objects on which a source depends.
func (s Source) Parts() []Part {
	return []Part{
		{byExport, logicalcluster.Of(s.Slice), s.Slice.Spec.Export.Name},
		{"slice", logicalcluster.Of(s.Slice), s.Slice.Name},
		{byResource, logicalcluster.Of(s.Resource), s.Resource.Name},
	}
}

// OnChange calls f when sources that depend on a part may have changed. f must not block.
func (r *Resources) OnChange(f func(Part)) {
	r.set.APIExports.AddHandlerForAll(func(old, obj runtime.Object) {
		before, _ := old.(*apisv1alpha2.APIExport)
		now, _ := obj.(*apisv1alpha2.APIExport)
		if before != nil && (now == nil || !reflect.DeepEqual(before.Spec.Resources, now.Spec.Resources)) {
			f(Part{byExport, logicalcluster.Of(before), before.Name})
		}
	})
	r.slices.AddHandlerForAll(func(old, obj runtime.Object) {
		if obj == nil {
			gone := old.(*cachev1alpha1.ClusterCachedResourceEndpointSlice)
			f(Part{"slice", logicalcluster.Of(gone), gone.Name})
		}
	})
	r.resources.AddHandlerForAll(func(old, obj runtime.Object) {
		before, _ := old.(*cachev1alpha1.ClusterCachedResource)
		now, _ := obj.(*cachev1alpha1.ClusterCachedResource)
		if before != nil && (now == nil || now.DeletionTimestamp != nil ||
			now.Status.IdentityHash != before.Status.IdentityHash || !reflect.DeepEqual(before.Spec, now.Spec)) {
			f(Part{byResource, logicalcluster.Of(before), before.Name})
		}
	})
}
