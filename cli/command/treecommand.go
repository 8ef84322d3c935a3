package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/cli/tree"
)

// tree is the command that draws the workspaces below the current one.
func (s *session) tree(invocation string) *cobra.Command {
	var style tree.Style
	var output format
	var interactive bool
	cmd := &cobra.Command{
		Use:   "tree",
		Short: "Draw the workspaces below the current one",
		Long:  "Draw the current workspace and everything below it. What you may not enter is shown without what it holds.",
		Example: examples(invocation, `
			# Everything below the current workspace
			%[1]s tree

			# Everything there is, with types and phases
			%[1]s tree -w :root --wide

			# One path in a line, for scripts
			%[1]s tree -o name

			# Walk through the tree and choose a workspace to go to
			%[1]s tree -i`),
		Args:              noMoreThan(0, "no argument; use --workspace to start elsewhere"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interactive {
				return s.choose(cmd.Context(), ".", "")
			}
			return s.drawTree(cmd.Context(), style, output)
		},
	}
	cmd.Flags().BoolVarP(&style.Full, "full", "f", false, "Show paths instead of names")
	cmd.Flags().BoolVar(&style.Wide, "wide", false, "Show types, and the phases of workspaces and their logical clusters")
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "Walk through the tree on the terminal, and go to the workspace chosen")
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
		start = p.Location // its own path is a courtesy
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
