package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/cli/internal/tree"
)

// tree returns the command that prints the workspaces below the current one.
func (s *session) tree(invocation string) *cobra.Command {
	var style tree.Style
	var output format
	var interactive bool
	cmd := &cobra.Command{
		Use:   "tree",
		Short: "Print the tree of workspaces",
		Long:  "Print the current workspace and all workspaces below it. Workspaces that you have no access to are shown without their children.",
		Example: examples(invocation, `
			# Print everything below the current workspace
			%[1]s tree

			# Print all workspaces, with types and phases
			%[1]s tree -w :root --wide

			# Print one path per line, for scripts
			%[1]s tree -o name

			# Browse the tree and switch to a workspace
			%[1]s tree -i`),
		Args:              atMost(0, "no arguments; set --workspace to start at another workspace"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interactive {
				return s.choose(cmd.Context(), ".", "")
			}
			return s.drawTree(cmd.Context(), style, output)
		},
	}
	cmd.Flags().BoolVarP(&style.Full, "full", "f", false, "Show paths instead of names")
	cmd.Flags().BoolVar(&style.Wide, "wide", false, "Show types, and the phases of workspaces and logical clusters")
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "Browse the tree interactively, and switch to the chosen workspace")
	output.addTo(cmd)
	return cmd
}

func (s *session) drawTree(ctx context.Context, style tree.Style, output format) error {
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	style.Wide = style.Wide || output == asWide
	start, err := p.client.Canonical(ctx, p.Location)
	if err != nil {
		start = p.Location // the path of the root is only for display
	}
	root, err := tree.Read(ctx, p.client, start, style.Wide)
	switch {
	case err != nil:
		return err
	case output.structured():
		return encode(s.Out, output, root)
	case output == asName:
		for _, path := range root.Paths() {
			if _, err := fmt.Fprintln(s.Out, path); err != nil {
				return err
			}
		}
		return nil
	}
	return tree.Draw(s.Out, root, style)
}
