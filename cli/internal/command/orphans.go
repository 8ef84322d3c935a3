package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/cli/internal/shards"
)

// orphanFlags are the flags of the command orphans.
type orphanFlags struct {
	adopt, remove string
	yes           bool
}

// orphans returns the command for logical clusters without a Workspace.
func (s *session) orphans(invocation string) *cobra.Command {
	var output format
	var flags orphanFlags
	cmd := &cobra.Command{
		Use:   "orphans",
		Short: "List, adopt or delete logical clusters without a Workspace",
		Long: `List the logical clusters that no Workspace has. kcp keeps them, because absence is no reason to delete anything: a restored
shard may have forgotten the Workspace. Adopt one to create its Workspace again, or delete it with everything in it. Run it at the root
shard as an administrator of all shards.`,
		Example: examples(invocation, `
			# List orphans
			%[1]s

			# Create the Workspace of an orphan again
			%[1]s --adopt=0b0a6a0e-5f0e-4a2f-8d6b-2c6b7d1e9a11

			# Delete an orphan and everything in it
			%[1]s --delete=0b0a6a0e-5f0e-4a2f-8d6b-2c6b7d1e9a11`),
		Args:              atMost(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return s.handleOrphans(cmd.Context(), output, flags) },
	}
	cmd.Flags().StringVar(&flags.adopt, "adopt", "", "Create the Workspace of the orphan with this UID again")
	cmd.Flags().StringVar(&flags.remove, "delete", "", "Delete the orphan with this UID, and everything in it")
	cmd.Flags().BoolVarP(&flags.yes, "yes", "y", false, "Do not ask for confirmation")
	cmd.MarkFlagsMutuallyExclusive("adopt", "delete")
	output.addChoice(cmd, []string{string(asJSON), string(asYAML)})
	return cmd
}

func (s *session) handleOrphans(ctx context.Context, output format, flags orphanFlags) error {
	client, err := s.shards(ctx)
	if err != nil {
		return err
	}
	found := slices.DeleteFunc(client.Check(ctx), func(f shards.Finding) bool { return f.Kind != shards.Orphaned })
	act, uid, doing, done := client.Adopt, flags.adopt, "Create Workspace %[2]s for logical cluster %[1]s on shard %[3]s?", "Adopted"
	if flags.remove != "" {
		act, uid, doing, done = client.Delete, flags.remove, "Delete logical cluster %[1]s of Workspace %[2]s on shard %[3]s?", "Deleted"
	}
	if uid == "" {
		return s.printOrphans(output, found)
	}
	i := slices.IndexFunc(found, func(f shards.Finding) bool { return string(f.ClusterUID) == uid })
	if i < 0 {
		return fmt.Errorf("no orphan has the UID %q", uid)
	}
	f := found[i]
	if err := s.confirm(flags.yes, fmt.Sprintf(doing, f.Cluster, f.Workspace, f.Shard)); err != nil {
		return err
	}
	if err := act(ctx, f); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%s logical cluster %s.\n", done, f.Cluster)
	return err
}

var errNotConfirmed = errors.New("not confirmed")

// confirm returns an error unless the user answers yes.
func (s *session) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	_, _ = fmt.Fprintf(s.ErrOut, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(s.In).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errNotConfirmed
	}
	return nil
}

func (s *session) printOrphans(output format, found []shards.Finding) error {
	if output.structured() {
		return s.printFindings(output, found)
	}
	rows := [][]string{{"CLUSTER", "SHARD", "WORKSPACE", "PATH", "UID"}}
	for _, f := range found {
		rows = append(rows, []string{f.Cluster, f.Shard, f.Workspace, f.Path, string(f.ClusterUID)})
	}
	return table(s.Out, rows...)
}
