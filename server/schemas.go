package server

import (
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// schemas returns the types of a cluster.
func (c *config) schemas(cluster logicalcluster.Name) resolver.SchemaResolver {
	return c.openapi.SchemaResolver(cluster, c.builtinSchemas())
}

func newBuiltinSchemas() resolver.SchemaResolver {
	return resolver.NewDefinitionsSchemaResolver(generatedopenapi.GetOpenAPIDefinitions, legacyscheme.Scheme, apiextensionsapiserver.Scheme)
}
