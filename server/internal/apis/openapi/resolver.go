package openapi

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// SchemaResolver returns the schemas for type checking expressions about the objects of a cluster: those of the
// cluster's custom resources, and for other kinds those of builtin.
func (o *OpenAPI) SchemaResolver(cluster logicalcluster.Name, builtin resolver.SchemaResolver) resolver.SchemaResolver {
	return clusterResolver{o, cluster, builtin}
}

type clusterResolver struct {
	*OpenAPI
	cluster logicalcluster.Name
	builtin resolver.SchemaResolver
}

const refPrefix = "#/components/schemas/"

// ResolveSchema implements resolver.SchemaResolver.
func (r clusterResolver) ResolveSchema(gvk schema.GroupVersionKind) (*spec.Schema, error) {
	d := r.definition(r.cluster, gvk)
	if d == nil {
		return r.builtin.ResolveSchema(gvk)
	}
	document, err := r.version(d, gvk.Version)
	if err != nil {
		return nil, err
	}
	for name, s := range document.Components.Schemas {
		var kinds []schema.GroupVersionKind
		if err := s.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil || len(kinds) != 1 || kinds[0] != gvk {
			continue
		}
		return resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
			s, ok := document.Components.Schemas[strings.TrimPrefix(ref, refPrefix)]
			return s, ok
		}, name)
	}
	return nil, fmt.Errorf("cannot resolve %v: %w", gvk, resolver.ErrSchemaNotFound)
}
