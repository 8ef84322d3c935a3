package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/internal/crd/snapshot"
)

// crdSnapshot returns the command that converts definitions to schemas.
func (s *session) crdSnapshot(invocation string) *cobra.Command {
	var files []string
	var prefix string
	var output format
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Convert CustomResourceDefinitions to APIResourceSchemas",
		Long: `Convert CustomResourceDefinitions to APIResourceSchemas, which an APIExport refers to. Schemas are immutable, so each state of a
definition becomes a new schema: <prefix>.<plural>.<group>.

A file can contain several definitions. The command rejects definitions with a conversion webhook that refers to a Service, because
workspaces that bind the API cannot reach it.`,
		Example: examples(invocation, `
			# Convert all definitions in a file
			%[1]s snapshot -f crds.yaml --prefix v261121 | kubectl apply -f -

			# Convert a definition of another cluster
			kubectl get crd widgets.example.com -o yaml | %[1]s snapshot -f - --prefix v1`),
		Args:              atMost(0, "no arguments; pass files with --filename"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.printSnapshots(files, prefix, output)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "File with CustomResourceDefinitions, or - for standard input")
	cmd.Flags().StringVar(&prefix, "prefix", "", "Prefix of the schema names; use a new one for each state, such as a date")
	output.addChoice(cmd, manifests)
	return cmd
}

func (s *session) printSnapshots(files []string, prefix string, output format) error {
	if len(files) == 0 {
		return errors.New("--filename is required: a file, or - for standard input")
	}
	if prefix == "" {
		return errors.New("--prefix is required: the names of the schemas start with it")
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
