// Package cachedresources resolves which objects of a logical cluster are published to others, and through which exports:
// from an export to the endpoint slice that is the virtual storage of a resource, and from there to the
// ClusterCachedResource.
package cachedresources

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Names of the indexes of slices by the objects to which they refer, in any cluster.
const (
	byResource = "clustercachedresource"
	byExport   = "export"
)

// Resources finds ClusterCachedResources and their endpoint slices in all clusters.
type Resources struct {
	set       *informers.Set
	resources informers.Lister[*cachev1alpha1.ClusterCachedResource]
	slices    informers.Lister[*cachev1alpha1.ClusterCachedResourceEndpointSlice]
	exports   *exports.Exports
}

// New returns Resources over set, whose informers must not run yet.
func New(set *informers.Set, e *exports.Exports) (*Resources, error) {
	r := &Resources{set: set, resources: set.ClusterCachedResources, slices: set.ClusterCachedResourceEndpointSlices, exports: e}
	return r, r.slices.AddIndexers(cache.Indexers{
		byResource: func(obj any) ([]string, error) {
			return []string{obj.(*cachev1alpha1.ClusterCachedResourceEndpointSlice).Spec.ClusterCachedResource.Name}, nil
		},
		byExport: func(obj any) ([]string, error) {
			return []string{obj.(*cachev1alpha1.ClusterCachedResourceEndpointSlice).Spec.Export.Name}, nil
		},
	})
}

// In returns the ClusterCachedResources of a cluster.
func (r *Resources) In(cluster logicalcluster.Name) []*cachev1alpha1.ClusterCachedResource {
	found, _ := r.resources.List(cluster) // the index exists
	return found
}

// Slice returns an endpoint slice.
func (r *Resources) Slice(cluster logicalcluster.Name, name string) (*cachev1alpha1.ClusterCachedResourceEndpointSlice, error) {
	return r.slices.Get(cluster, "", name)
}

// Naming returns the slices of all clusters that refer to a ClusterCachedResource by this name, in any cluster.
func (r *Resources) Naming(resource string) []*cachev1alpha1.ClusterCachedResourceEndpointSlice {
	found, _ := r.slices.ByIndex(byResource, resource) // the index exists
	return found
}

// NamingExport returns the slices of all clusters that refer to an export by this name.
func (r *Resources) NamingExport(export string) []*cachev1alpha1.ClusterCachedResourceEndpointSlice {
	found, _ := r.slices.ByIndex(byExport, export) // the index exists
	return found
}

// Find returns the ClusterCachedResource of a slice, or a NotFound error.
func (r *Resources) Find(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) (*cachev1alpha1.ClusterCachedResource, error) {
	reference := slice.Spec.ClusterCachedResource
	if cluster, ok := r.exports.Cluster(logicalcluster.Of(slice), reference.Path); ok {
		return r.resources.Get(cluster, "", reference.Name)
	}
	return nil, apierrors.NewNotFound(cachev1alpha1.Resource("clustercachedresources"), reference.Name)
}

// Export returns the export of a slice, or a NotFound error. A slice in another workspace than its export has none, because
// the export cannot refer to it.
func (r *Resources) Export(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice) (*apisv1alpha2.APIExport, error) {
	export, err := r.exports.Find(logicalcluster.Of(slice), slice.Spec.Export)
	if err == nil && logicalcluster.Of(export) != logicalcluster.Of(slice) {
		return nil, apierrors.NewNotFound(apisv1alpha2.Resource("apiexports"), slice.Spec.Export.Name)
	}
	return export, err
}

// Published returns the resources of an export whose virtual storage is a slice.
func Published(export *apisv1alpha2.APIExport, slice string) []schema.GroupResource {
	var shown []schema.GroupResource
	for _, resource := range export.Spec.Resources {
		if of, err := sliceOf(resource); err == nil && of == slice {
			shown = append(shown, schema.GroupResource{Group: resource.Group, Resource: resource.Name})
		}
	}
	return shown
}

// sliceOf returns the slice that is the virtual storage of a resource.
func sliceOf(resource apisv1alpha2.ResourceSchema) (string, error) {
	virtual := resource.Storage.Virtual
	switch {
	case virtual == nil:
		return "", fmt.Errorf("the provider no longer publishes its own objects")
	case !isSlice(virtual.Reference):
		return "", fmt.Errorf("its virtual storage refers to kind %s; it must be ClusterCachedResourceEndpointSlice of group "+
			"%s", virtual.Reference.Kind,
			cachev1alpha1.SchemeGroupVersion.Group)
	}
	return virtual.Reference.Name, nil
}

// EndpointSlice returns the reference to the storage of a virtual resource if that is not a ClusterCachedResource: an endpoint
// slice of another kind in the workspace of the export.
func (r *Resources) EndpointSlice(cluster logicalcluster.Name, name string,
	resource schema.GroupResource) (reference corev1.TypedLocalObjectReference, ok bool) {
	exported, err := r.exported(cluster, name, resource)
	if err != nil || exported.Storage.Virtual == nil {
		return reference, false
	}
	reference = exported.Storage.Virtual.Reference
	return reference, !isSlice(reference)
}

func isSlice(r corev1.TypedLocalObjectReference) bool {
	return r.APIGroup != nil && *r.APIGroup == cachev1alpha1.SchemeGroupVersion.Group && r.Kind == "ClusterCachedResourceEndpointSlice"
}

// exported returns the entry of a resource in an export.
func (r *Resources) exported(cluster logicalcluster.Name, name string, resource schema.GroupResource) (apisv1alpha2.ResourceSchema, error) {
	export, err := r.exports.Get(cluster, name)
	if err != nil {
		return apisv1alpha2.ResourceSchema{}, fmt.Errorf("the provider deleted the export")
	}
	i := slices.IndexFunc(export.Spec.Resources, func(s apisv1alpha2.ResourceSchema) bool {
		return s.Group == resource.Group && s.Name == resource.Resource
	})
	if i < 0 {
		return apisv1alpha2.ResourceSchema{}, fmt.Errorf("the provider no longer exports it")
	}
	return export.Spec.Resources[i], nil
}

// Source is the source of the objects of a virtual resource.
type Source struct {
	Slice    *cachev1alpha1.ClusterCachedResourceEndpointSlice
	Resource *cachev1alpha1.ClusterCachedResource
}

// Source returns the source of the objects of a virtual resource, or an error if it has none. All parts must agree: the export and
// the slice refer to each other, and the identity is that of the ClusterCachedResource.
func (r *Resources) Source(cluster logicalcluster.Name, name string, resource schema.GroupResource) (Source, error) {
	exported, err := r.exported(cluster, name, resource)
	if err != nil {
		return Source{}, err
	}
	sliceName, err := sliceOf(exported)
	if err != nil {
		return Source{}, err
	}
	slice, err := r.Slice(cluster, sliceName)
	if err != nil {
		return Source{}, fmt.Errorf("the ClusterCachedResourceEndpointSlice to which the export refers does not exist")
	}
	if of, err := r.Export(slice); err != nil || of.Name != name {
		return Source{}, fmt.Errorf("the ClusterCachedResourceEndpointSlice to which the export refers belongs to another export")
	}
	cached, err := r.Find(slice)
	if err != nil || cached.DeletionTimestamp != nil {
		return Source{}, fmt.Errorf("the ClusterCachedResource to which the export refers does not exist")
	}
	if cached.Spec.Group != resource.Group || cached.Spec.Resource != resource.Resource {
		return Source{}, fmt.Errorf("the ClusterCachedResource to which the export refers is for another resource")
	}
	if hash := exported.Storage.Virtual.IdentityHash; hash == "" || hash != cached.Status.IdentityHash {
		return Source{}, fmt.Errorf("the ClusterCachedResource to which the export refers has another identity")
	}
	return Source{Slice: slice, Resource: cached}, nil
}
