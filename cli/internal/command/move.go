package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/location"
	"github.com/kcplane/kcp/cli/internal/moves"
)

// relocation are the flags of move.
type relocation struct {
	to                        string
	dryRun, recursive, cancel bool
	output                    format
}

// move returns the command that moves workspaces to another shard.
func (s *session) move(invocation string) *cobra.Command {
	r := relocation{}
	cmd := &cobra.Command{
		Use:   "move WORKSPACE --to SHARD",
		Short: "Move a workspace to another shard",
		Long: `Move the logical cluster of a workspace to another shard while it is in use, and wait until it is there. Administrators of root
can do this, at the URL of a front proxy or of the root shard. Children stay where they are, unless you set --recursive.

If you interrupt the command, the migration continues. Cancel it with --cancel.`,
		Example: examples(invocation, `
			# Move a workspace to the shard west
			%[1]s team-a --to west

			# Show what would move
			%[1]s :root:org --to west --recursive --dry-run

			# Cancel the migration of a workspace
			%[1]s team-a --cancel`),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s requires one argument, the workspace; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: s.completePaths,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.relocate(cmd.Context(), args[0], r) },
	}
	cmd.Flags().StringVar(&r.to, "to", "", "Name of the shard")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "Print what would move, and move nothing")
	cmd.Flags().BoolVarP(&r.recursive, "recursive", "R", false, "Also move the workspaces below, one after the other, the leaves first")
	cmd.Flags().BoolVar(&r.cancel, "cancel", false, "Cancel the migration of the workspace")
	r.output.addChoice(cmd, []string{string(asJSON), string(asYAML)})
	return cmd
}

func (s *session) relocate(ctx context.Context, name string, r relocation) error {
	if (r.to == "") != r.cancel {
		return errors.New("set either --to with the name of a shard, or --cancel")
	}
	p, err := s.inWorkspace(ctx)
	if err != nil {
		return err
	}
	planned, err := s.plan(ctx, p, name, r)
	if err != nil {
		return err
	}
	at, err := p.client.At(p.At(location.Root), migrationv1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	client := moves.New(at)
	if r.cancel {
		return s.cancelMoves(ctx, client, planned)
	}
	shards, err := p.client.At(p.At(location.Root), corev1alpha1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	if err := moves.CheckShard(ctx, shards, r.to); err != nil {
		return err
	}
	for i := range planned {
		if r.dryRun || planned[i].From == r.to {
			continue
		}
		if err := s.moveOne(ctx, client, &planned[i], r.output); err != nil {
			return err
		}
	}
	return s.printMoves(planned, r)
}

// plan returns what moves.
func (s *session) plan(ctx context.Context, p *place, name string, r relocation) ([]moves.Move, error) {
	at, err := s.resolve(ctx, p, name)
	if err != nil {
		return nil, err
	}
	if at, err = p.client.Canonical(ctx, at); err != nil {
		return nil, err
	}
	parent, ok := at.Parent()
	if !ok {
		return nil, fmt.Errorf("workspace %s has no parent, and does not move", at)
	}
	path := at.Cluster()
	ws, err := p.client.Get(ctx, parent, path[strings.LastIndex(path, ":")+1:])
	if err != nil {
		return nil, err
	}
	return moves.Plan(ctx, p.client, at, ws, r.to, r.recursive)
}

func (s *session) moveOne(ctx context.Context, client *moves.Client, m *moves.Move, output format) error {
	created, err := client.Begin(ctx, *m)
	if err != nil {
		return fmt.Errorf("moving workspace %s: %w", m.Path, err)
	}
	m.Migration = created.Name
	progress := newProgress(s.ErrOut)
	last, err := client.Await(ctx, created.Name, func(state *migrationv1alpha1.LogicalClusterMigration) {
		progress.show(describeMove(m.Path, state))
	})
	progress.end()
	if last != nil {
		m.Phase, m.Entries, m.Bytes = last.Status.Phase, last.Status.EntriesCopied, last.Status.BytesCopied
	}
	if err != nil {
		return fmt.Errorf("moving workspace %s: %w", m.Path, err)
	}
	if !output.structured() {
		_, err = fmt.Fprintf(s.Out, "Workspace %s moved from shard %s to %s: %d objects.\n", m.Path, m.From, m.To, m.Entries)
	}
	return err
}

// describeMove returns the state of a migration in a line.
func describeMove(path string, m *migrationv1alpha1.LogicalClusterMigration) string {
	text := fmt.Sprintf("Workspace %s: %s, %d objects copied", path, m.Status.Phase, m.Status.EntriesCopied)
	if message := moves.Message(m); message != "" {
		text += ": " + message
	}
	return text
}

func (s *session) cancelMoves(ctx context.Context, client *moves.Client, planned []moves.Move) error {
	for _, m := range planned {
		names, err := client.Cancel(ctx, m.Cluster)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("Workspace %s has no running migration.\n", m.Path)
		if len(names) > 0 {
			text = fmt.Sprintf("Workspace %s: canceled %s.\n", m.Path, strings.Join(names, ", "))
		}
		if _, err := fmt.Fprint(s.Out, text); err != nil {
			return err
		}
	}
	return nil
}

// printMoves prints the result, or with --dry-run what would move.
func (s *session) printMoves(planned []moves.Move, r relocation) error {
	if r.output.structured() {
		return encode(s.Out, r.output, planned)
	}
	for _, m := range planned {
		var text string
		switch {
		case m.From == r.to:
			text = fmt.Sprintf("Workspace %s is on shard %s already.\n", m.Path, m.From)
		case r.dryRun:
			text = fmt.Sprintf("Workspace %s would move from shard %s to %s (dry run).\n", m.Path, m.From, m.To)
		}
		if _, err := fmt.Fprint(s.Out, text); err != nil {
			return err
		}
	}
	return nil
}
