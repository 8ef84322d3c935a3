package customresources

import (
	"embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/server/logicalcluster"
)

//go:embed system/*.yaml
var systemFiles embed.FS

// systemDefinitions returns the definitions that clusters serve without storing them, generated from the Go types in api/.
func systemDefinitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
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
}

// System returns the definition of one of the server's own resources, given as <resource>.<group>.
func System(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	definitions, err := systemDefinitions()
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

// servedIn tells whether a cluster serves a system definition; the empty name stands for all clusters. The view of an export
// has none of them but the bindings to the export.
func servedIn(key string, cluster logicalcluster.Name) bool {
	if isView(cluster) {
		return key == "apibindings.apis.kcp.io"
	}
	return key != "shards.core.kcp.io" || cluster == logicalcluster.Root || cluster == ""
}
