package command

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kcplane/kcp/internal/crd"
)

// manifests are the output formats of commands that print manifests.
var manifests = []string{string(asYAML), string(asJSON)}

// crd returns the command that groups everything about CustomResourceDefinitions.
func (s *session) crd(invocation string) *cobra.Command {
	return group("crd", "Pull, compare and convert CustomResourceDefinitions",
		"Pull CustomResourceDefinitions from clusters, compare them, and convert them to the APIResourceSchemas of an APIExport.",
		examples(invocation, `
			# Pull the definitions of two resources of the current cluster
			%[1]s pull deployments.apps widgets.example.com

			# Find breaking changes in a new version of a definition
			%[1]s compat old.yaml new.yaml

			# Convert a definition to an APIResourceSchema
			%[1]s snapshot -f crd.yaml --prefix v1`),
		s.crdPull(invocation), s.crdCompat(invocation), s.crdSnapshot(invocation))
}

// readDefinitions reads a file, or standard input if its name is -.
func (s *session) readDefinitions(name string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	in, described := s.In, "standard input"
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in, described = io.Reader(file), name
	}
	definitions, err := crd.Read(in)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", described, err)
	}
	return definitions, nil
}
