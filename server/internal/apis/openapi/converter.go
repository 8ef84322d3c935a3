package openapi

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// TypeConverter returns what merges the custom resources of a kind in a cluster: by their schema, so that lists that are maps
// or sets are merged as such. It returns false for a kind that the cluster has no definition of.
func (o *OpenAPI) TypeConverter(cluster logicalcluster.Name, gvk schema.GroupVersionKind) (managedfields.TypeConverter, bool) {
	d := o.definition(cluster, gvk)
	if d == nil {
		return nil, false
	}
	converter, err := cached(o, o.converters, d.Hash+"/"+gvk.Version, func() (managedfields.TypeConverter, error) {
		document, err := o.version(d, gvk.Version)
		if err != nil {
			return nil, err
		}
		return managedfields.NewTypeConverter(document.Components.Schemas, d.CRD.Spec.PreserveUnknownFields)
	})
	return converter, err == nil
}

// definition returns the one that serves a kind in a cluster, or nil.
func (o *OpenAPI) definition(cluster logicalcluster.Name, gvk schema.GroupVersionKind) *customresources.Definition {
	for _, i := range o.custom(cluster) {
		if i.CRD.Spec.Group == gvk.Group && i.CRD.Spec.Names.Kind == gvk.Kind && i.Serves(gvk.Version) {
			return i.Definition
		}
	}
	return nil
}
