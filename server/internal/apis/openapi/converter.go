package openapi

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// TypeConverter returns the converter with which apply merges the custom resources of a kind in a cluster. It uses their
// schema, which defines lists that are maps or sets. It returns false if the cluster has no definition of the kind.
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

// definition returns the definition that serves a kind in a cluster, or nil.
func (o *OpenAPI) definition(cluster logicalcluster.Name, gvk schema.GroupVersionKind) *customresources.Definition {
	for _, i := range o.custom(cluster) {
		if i.CRD.Spec.Group == gvk.Group && i.CRD.Spec.Names.Kind == gvk.Kind && i.Serves(gvk.Version) {
			return i.Definition
		}
	}
	return nil
}
