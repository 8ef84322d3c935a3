package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kcplane/kcp/cli/crd/compat"
)

// crdCompat is the command that compares definitions.
func (s *session) crdCompat(invocation string) *cobra.Command {
	var options compat.Options
	var lcd bool
	var output format
	cmd := &cobra.Command{
		Use:   "compat OLD NEW",
		Short: "Tell what a new CustomResourceDefinition breaks",
		Long: `Compare two CustomResourceDefinitions of a resource. OLD and NEW are files; one of them can be -, which is standard input.

Each line that is printed is a field of objects, and how the new definition refuses what the old one accepts there, drops it, or gives
it another meaning. If there is any, the command fails.

With --lcd the least common denominator is printed instead: a definition whose objects are valid under both. The command then fails
only if there is none, or if nobody knows how to compute it; the lines go to standard error.`,
		Example: examples(invocation, `
			# What breaks when a definition is updated
			%[1]s compat old.yaml new.yaml
			kubectl get crd widgets.example.com -o yaml | %[1]s compat - new.yaml

			# Between versions of one definition
			%[1]s compat crd.yaml crd.yaml --old-version v1beta1 --new-version v1

			# A definition that suits two clusters
			%[1]s compat east.yaml west.yaml --lcd`),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s takes two files, not %q; see %s --help", cmd.CommandPath(), args, cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.printCompat(args[0], args[1], options, lcd, output)
		},
	}
	cmd.Flags().BoolVar(&lcd, "lcd", false, "Print the least common denominator")
	cmd.Flags().StringVar(&options.ExistingVersion, "old-version", "", "Compare this version only")
	cmd.Flags().StringVar(&options.NewVersion, "new-version", "", "Compare it to this version; by default the one with the same name")
	output.addChoice(cmd, manifests)
	return cmd
}

func (s *session) printCompat(oldFile, newFile string, options compat.Options, lcd bool, output format) error {
	if options.NewVersion == "" {
		options.NewVersion = options.ExistingVersion
	} else if options.ExistingVersion == "" {
		return fmt.Errorf("--new-version goes together with --old-version")
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
		return fmt.Errorf("%s: there is no least common denominator: %d of %d differences are conflicts (marked with !)",
			existing.Name, len(result.Conflicts()), len(result.Findings))
	case lcd:
		return documents(s.Out, output, []*apiextensionsv1.CustomResourceDefinition{result.LCD})
	case len(result.Findings) > 0:
		return fmt.Errorf("%s: the new definition is not compatible: differences: %d", existing.Name, len(result.Findings))
	}
	return nil
}

// printFindings marks those that leave no least common denominator.
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

// readDefinition reads the one definition in a file.
func (s *session) readDefinition(file string) (*apiextensionsv1.CustomResourceDefinition, error) {
	definitions, err := s.readDefinitions(file)
	if err == nil && len(definitions) != 1 {
		err = fmt.Errorf("%s has %d definitions, and one can be compared", file, len(definitions))
	}
	if err != nil {
		return nil, err
	}
	return definitions[0], nil
}
