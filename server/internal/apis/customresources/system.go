package customresources

import (
	"embed"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/server/logicalcluster"
)

//go:embed system/*.yaml
var systemFiles embed.FS

// SystemDefinitions returns the definitions that clusters serve without storing them, generated from the Go types in api/. They
// are parsed once and must not be modified.
var SystemDefinitions = sync.OnceValues(func() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := systemFiles.ReadDir("system")
	if err != nil {
		return nil, err
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		content, err := systemFiles.ReadFile("system/" + file.Name())
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			return nil, fmt.Errorf("system definition %s: %w", file.Name(), err)
		}
		convertHere(crd)
		definitions = append(definitions, Establish(crd))
	}
	return definitions, nil
})

// System returns the definition of one of the server's own resources, given as <resource>.<group>.
func System(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	definitions, err := SystemDefinitions()
	if err != nil {
		return nil, err
	}
	for _, crd := range definitions {
		if crd.Name == name {
			return crd, nil
		}
	}
	return nil, fmt.Errorf("the server has no resource %s", name)
}

// SystemResources returns the resources in SystemDefinitions.
func SystemResources(definitions []*apiextensionsv1.CustomResourceDefinition) []schema.GroupResource {
	resources := make([]schema.GroupResource, len(definitions))
	for i, crd := range definitions {
		resources[i] = schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
	}
	return resources
}

// systemUnder returns a system definition for requests with the identity of the export in root that represents it.
func (h *Handler) systemUnder(key, identity string) (*Definition, bool) {
	d, ok := h.registry.system[key]
	if !ok {
		return nil, false
	}
	name, ok := h.config.System[schema.GroupResource{Group: d.CRD.Spec.Group, Resource: d.CRD.Spec.Names.Plural}]
	if !ok {
		return nil, false
	}
	if identity == "" { // most requests
		return d, false
	}
	export, err := h.config.Exports.Get(logicalcluster.Root, "", name)
	return d, err == nil && export.Status.IdentityHash == identity
}

// onlyInRoot are the definitions that only the logical cluster root serves.
var onlyInRoot = map[string]bool{"shards.core.kcp.io": true, "logicalclustermigrations.migration.kcp.io": true}

// servedIn reports whether a cluster serves a system definition; the empty name means all clusters. The view of an
// export serves only the bindings to the export.
func servedIn(key string, cluster logicalcluster.Name) bool {
	if isView(cluster) {
		return key == "apibindings.apis.kcp.io"
	}
	return !onlyInRoot[key] || cluster == logicalcluster.Root || cluster == ""
}
