package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kcplane/kcp/cli/crd/pull"
)

// crdPull is the command that gets definitions from a cluster.
func (s *session) crdPull(invocation string) *cobra.Command {
	var directory string
	var output format
	cmd := &cobra.Command{
		Use:   "pull [RESOURCE...]",
		Short: "Get CustomResourceDefinitions of what a cluster serves",
		Long: `Get CustomResourceDefinitions of resources that a cluster serves: any cluster, be it a workspace or not.

RESOURCE is a name like deployments, deployments.apps or deployments.v1.apps; the group of pods is core. Without any, all resources
are pulled that hold objects, apart from those that every workspace has already.

What has a CustomResourceDefinition that you may read is pulled as it is there. For everything else, such as the types of Kubernetes
itself and APIs that a workspace is bound to, a definition is made from discovery and OpenAPI. It has one version, and may lack printer
columns and label selectors of scales, which are not published.`,
		Example: examples(invocation, `
			# Two resources of the current cluster
			%[1]s pull deployments.apps widgets.example.com

			# Everything of another cluster, a file for each
			%[1]s pull --context east --output-dir east/

			# From one workspace to another
			%[1]s pull widgets.example.com -w :root:org | kubectl apply -f -`),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.printPulled(cmd.Context(), args, directory, output)
		},
	}
	cmd.Flags().StringVar(&directory, "output-dir", "", "Write a file for each definition into this directory, instead of printing them")
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
		return errors.New("the cluster serves nothing that a workspace does not have already; name resources to pull them all the same")
	case directory != "":
		return s.writeDefinitions(directory, pulled.Definitions, output)
	}
	return documents(s.Out, output, pulled.Definitions)
}

// writeDefinitions makes a file for each definition, named after it.
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
