package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kcplane/kcp/internal/crd/compat"
)

// crdCompat returns the command that compares definitions.
func (s *session) crdCompat(invocation string) *cobra.Command {
	var options compat.Options
	var lcd bool
	var output format
	cmd := &cobra.Command{
		Use:   "compat OLD NEW",
		Short: "Report breaking changes between two CustomResourceDefinitions",
		Long: `Compare two CustomResourceDefinitions of the same resource. OLD and NEW are files; one of them can be - for standard input.

The command prints one line for each breaking change: a field whose old values the new definition rejects, drops or interprets in
another way. It fails if there is any.

With --lcd it prints the least common denominator instead: a definition whose objects are valid under both. It then fails only if no
least common denominator exists or can be computed, and prints the breaking changes to standard error.`,
		Example: examples(invocation, `
			# Find breaking changes before updating a definition
			%[1]s compat old.yaml new.yaml
			kubectl get crd widgets.example.com -o yaml | %[1]s compat - new.yaml

			# Compare two versions of one definition
			%[1]s compat crd.yaml crd.yaml --old-version v1beta1 --new-version v1

			# Print a definition that is valid for two clusters
			%[1]s compat east.yaml west.yaml --lcd`),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s requires two files, got %q; see %s --help", cmd.CommandPath(), args, cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.printCompat(args[0], args[1], options, lcd, output)
		},
	}
	cmd.Flags().BoolVar(&lcd, "lcd", false, "Print the least common denominator of both definitions")
	cmd.Flags().StringVar(&options.ExistingVersion, "old-version", "", "Compare only this version of OLD")
	cmd.Flags().StringVar(&options.NewVersion, "new-version", "", "Compare with this version of NEW (default: the same version)")
	output.addChoice(cmd, manifests)
	return cmd
}

func (s *session) printCompat(oldFile, newFile string, options compat.Options, lcd bool, output format) error {
	if options.NewVersion == "" {
		options.NewVersion = options.ExistingVersion
	} else if options.ExistingVersion == "" {
		return fmt.Errorf("--new-version requires --old-version")
	}
	existing, err := s.readDefinition(oldFile)
	if err != nil {
		return err
	}
	updated, err := s.readDefinition(newFile)
	if err != nil {
		return err
	}
	result, err := compat.Compare(existing, updated, options)
	if err != nil {
		return err
	}
	to := s.Out
	if lcd {
		to = s.ErrOut
	}
	if err := printFindings(to, result.Findings); err != nil {
		return err
	}
	switch {
	case lcd && result.LCD == nil:
		return fmt.Errorf("%s: no least common denominator: %d of %d differences are conflicts (marked with !)",
			existing.Name, len(result.Conflicts()), len(result.Findings))
	case lcd:
		return documents(s.Out, output, []*apiextensionsv1.CustomResourceDefinition{result.LCD})
	case len(result.Findings) > 0:
		return fmt.Errorf("%s: the new definition is not compatible: %d differences", existing.Name, len(result.Findings))
	}
	return nil
}

// printFindings prints one line per finding, and marks conflicts with an exclamation mark.
func printFindings(w io.Writer, findings []compat.Finding) error {
	for _, f := range findings {
		mark := " "
		if f.Conflict {
			mark = "!"
		}
		if _, err := fmt.Fprintf(w, "%s %s\n", mark, f); err != nil {
			return err
		}
	}
	return nil
}

// readDefinition reads a file with exactly one definition.
func (s *session) readDefinition(file string) (*apiextensionsv1.CustomResourceDefinition, error) {
	definitions, err := s.readDefinitions(file)
	if err == nil && len(definitions) != 1 {
		err = fmt.Errorf("%s has %d definitions, expected one", file, len(definitions))
	}
	if err != nil {
		return nil, err
	}
	return definitions[0], nil
}
