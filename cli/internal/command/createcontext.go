package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/cli/internal/kubeconfig"
)

// createContext returns the command that creates a kubeconfig context for the current workspace.
func (s *session) createContext(invocation string) *cobra.Command {
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "create-context [NAME]",
		Short: "Create a kubeconfig context for the current workspace",
		Long: `Create a kubeconfig context for the current workspace, and switch to it. Unlike the context that kubectl ws maintains, it always
refers to the same workspace. NAME defaults to the path of the workspace.`,
		Example: examples(invocation, `
			# Create a context that is named after the path of the current workspace
			%[1]s create-context

			# Create or replace a context for another workspace
			%[1]s create-context staging -w :root:org:staging --overwrite`),
		Args:              atMost(1, "at most one name"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return s.addContext(cmd.Context(), name, overwrite)
		},
	}
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "Replace an existing context of the same name")
	return cmd
}

func (s *session) addContext(ctx context.Context, name string, overwrite bool) error {
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	if s.workspace != "" {
		if err := p.client.Verify(ctx, p.Location); err != nil {
			return err
		}
	}
	if name == "" {
		canonical, err := p.client.Canonical(ctx, p.Location)
		if err != nil {
			return fmt.Errorf("cannot derive the context name from the path of the workspace, pass a name as the argument: %w", err)
		}
		name = canonical.Cluster()
	}
	verb := "Created"
	if p.config.Contexts[name] != nil {
		verb = "Replaced"
	}
	changed, err := kubeconfig.Add(p.config, p.overrides, name, p.URL(), overwrite, true)
	if err != nil {
		return err
	}
	if err := kubeconfig.Save(p.access, changed); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%s context %q and switched to it.\n", verb, name)
	return err
}
