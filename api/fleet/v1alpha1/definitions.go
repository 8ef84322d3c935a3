package v1alpha1

import (
	"embed"
	"fmt"
)

//go:embed definitions/*.yaml
var definitions embed.FS

// Definition returns the CustomResourceDefinition of a resource of this group, in YAML.
func Definition(resource string) ([]byte, error) {
	content, err := definitions.ReadFile("definitions/fleet.kcp.io_" + resource + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("the group fleet.kcp.io has no resource %q", resource)
	}
	return content, nil
}
