package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/cli/kubeconfig"
)

// createContext is the command that gives the current workspace a context of its own.
func (s *session) createContext(invocation string) *cobra.Command {
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "create-context [NAME]",
		Short: "Make a context for the current workspace",
		Long: `Make a context of the kubeconfig for the current workspace, and switch to it. Unlike where kubectl ws leads, the context
stays with its workspace. NAME is by default the path of the workspace.`,
		Example: examples(invocation, `
			# A context named after the path of the current workspace
			%[1]s create-context

			# A context for another workspace, replacing one of that name
			%[1]s create-context staging -w :root:org:staging --overwrite`),
		Args:              noMoreThan(1, "one name"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			return s.addContext(cmd.Context(), name, overwrite)
		},
	}
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "Replace a context of that name")
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
			return fmt.Errorf("the path of the workspace is not known, so give the context a name: %w", err)
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
