package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kcplane/kcp/internal/crd/pull"
)

// crdPull returns the command that reads definitions from a cluster.
func (s *session) crdPull(invocation string) *cobra.Command {
	var directory string
	var output format
	cmd := &cobra.Command{
		Use:   "pull [RESOURCE...]",
		Short: "Get CustomResourceDefinitions for the resources of a cluster",
		Long: `Get CustomResourceDefinitions for resources that a cluster serves. The cluster can be a workspace or any other Kubernetes cluster.

RESOURCE is a name such as deployments, deployments.apps or deployments.v1.apps; the group of pods is core. Without arguments, the
command pulls all resources that store objects, except those that every workspace already has.

If you may read the CustomResourceDefinition of a resource, the command returns it. For all other resources, such as the built-in types
of Kubernetes and bound APIs, it generates a definition from discovery and OpenAPI. A generated definition has one version, and may lack
printer columns and the label selector of the scale subresource, because servers do not publish them.`,
		Example: examples(invocation, `
			# Pull two resources of the current cluster
			%[1]s pull deployments.apps widgets.example.com

			# Pull all resources of another cluster, one file each
			%[1]s pull --context east --output-dir east/

			# Copy a definition from another workspace to the current one
			%[1]s pull widgets.example.com -w :root:org | kubectl apply -f -`),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.printPulled(cmd.Context(), args, directory, output)
		},
	}
	cmd.Flags().StringVar(&directory, "output-dir", "", "Write one file per definition to this directory instead of printing them")
	output.addChoice(cmd, manifests)
	_ = cmd.MarkFlagDirname("output-dir")
	return cmd
}

func (s *session) printPulled(ctx context.Context, names []string, directory string, output format) error {
	p, err := s.open(ctx)
	if err != nil {
		return err
	}
	if err := p.client.Verify(ctx, p.Location); err != nil {
		return err
	}
	config, err := s.restConfig(p)
	if err != nil {
		return err
	}
	cluster, err := pull.New(config)
	if err != nil {
		return err
	}
	pulled, err := cluster.Pull(ctx, names)
	for _, note := range pulled.Notes {
		_, _ = fmt.Fprintf(s.ErrOut, "Note: %s\n", note)
	}
	switch {
	case err != nil:
		return fmt.Errorf("pulling from %s: %w", p.URL(), err)
	case len(pulled.Definitions) == 0:
		return errors.New("the cluster serves only resources that every workspace already has; pass the names of resources to pull them anyway")
	case directory != "":
		return s.writeDefinitions(directory, pulled.Definitions, output)
	}
	return documents(s.Out, output, pulled.Definitions)
}

// writeDefinitions writes one file per definition, named after it.
func (s *session) writeDefinitions(directory string, definitions []*apiextensionsv1.CustomResourceDefinition, output format) error {
	if err := os.MkdirAll(directory, 0o777); err != nil {
		return err
	}
	if output == "" {
		output = asYAML
	}
	for _, definition := range definitions {
		name := filepath.Join(directory, definition.Name+"."+string(output))
		file, err := os.Create(name)
		if err != nil {
			return err
		}
		err = documents(file, output, []*apiextensionsv1.CustomResourceDefinition{definition})
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(s.Out, name); err != nil {
			return err
		}
	}
	return nil
}
