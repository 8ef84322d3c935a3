package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/cli/crd/snapshot"
)

// crdSnapshot is the command that turns definitions into schemas.
func (s *session) crdSnapshot(invocation string) *cobra.Command {
	var files []string
	var prefix string
	var output format
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Turn CustomResourceDefinitions into APIResourceSchemas",
		Long: `Turn CustomResourceDefinitions into APIResourceSchemas of apis.kcp.io, for APIExports to offer. A schema never changes, so
each state of a definition becomes a schema with a name of its own: <prefix>.<plural>.<group>.

Files may have many definitions. Definitions whose conversion webhook is a Service are refused: workspaces that use the API could
not reach it.`,
		Example: examples(invocation, `
			# All definitions in a file, as they are today
			%[1]s snapshot -f crds.yaml --prefix v261121 | kubectl apply -f -

			# A definition from another cluster
			kubectl get crd widgets.example.com -o yaml | %[1]s snapshot -f - --prefix v1`),
		Args:              noMoreThan(0, "no argument; name files with --filename"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.printSnapshots(files, prefix, output)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "A file with CustomResourceDefinitions; - is standard input")
	cmd.Flags().StringVar(&prefix, "prefix", "", "What the names of the schemas begin with: something new for each state, such as a date")
	output.addChoice(cmd, manifests)
	return cmd
}

func (s *session) printSnapshots(files []string, prefix string, output format) error {
	if len(files) == 0 {
		return errors.New("name a file with --filename, or - for standard input")
	}
	if prefix == "" {
		return errors.New("set --prefix: the names of the schemas begin with it")
	}
	if err := snapshot.ValidatePrefix(prefix); err != nil {
		return fmt.Errorf("--prefix: %w", err)
	}
	var schemas []*apisv1alpha1.APIResourceSchema
	for _, file := range files {
		definitions, err := s.readDefinitions(file)
		if err != nil {
			return err
		}
		for _, definition := range definitions {
			schema, err := snapshot.Take(definition, prefix)
			if err != nil {
				return fmt.Errorf("%s: %w", definition.Name, err)
			}
			schemas = append(schemas, schema)
		}
	}
	return documents(s.Out, output, schemas)
}
