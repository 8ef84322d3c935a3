package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/cli/internal/shards"
)

// check returns the command that compares the shards.
func (s *session) check(invocation string) *cobra.Command {
	var output format
	var repair, rebuild bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare the shards of an installation",
		Long: `Compare what the shards of an installation hold with the records in the Workspaces: logical clusters that are lost, doubled or
orphaned, and conflicts of epochs. Run it at the root shard as an administrator of all shards, for example after a shard was restored from a
snapshot. If it finds nothing, it ends the quarantine of restored shards. Otherwise, or if a shard does not respond (Silent) or refuses
the user (Forbidden), it fails.

Nothing is ever deleted. --repair corrects records with a lower epoch than that of the logical cluster.`,
		Example: examples(invocation, `
			# Compare all shards
			%[1]s --context shard:root

			# Correct the records that are behind
			%[1]s --repair

			# After the loss of the root shard, create the Workspaces of organizations and homes again
			%[1]s --repair --rebuild-root`),
		Args:              atMost(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.checkShards(cmd.Context(), output, repair, rebuild)
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "Correct the records that have a lower epoch than the logical cluster")
	cmd.Flags().BoolVar(&rebuild, "rebuild-root", false,
		"With --repair: create the Workspaces of orphaned organizations and homes again, after the root shard was lost")
	output.addChoice(cmd, []string{string(asJSON), string(asYAML)})
	return cmd
}

func (s *session) checkShards(ctx context.Context, output format, repair, rebuild bool) error {
	client, err := s.shards(ctx)
	if err != nil {
		return err
	}
	found := client.Check(ctx)
	if repair {
		if err := s.repair(ctx, client, found, rebuild); err != nil {
			return err
		}
		found = client.Check(ctx)
	}
	if err := s.printFindings(output, found); err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("%d findings; see the messages, and kubectl kcp orphans", len(found))
	}
	if len(client.Quarantined) > 0 {
		_, _ = fmt.Fprintf(s.ErrOut, "Ending the quarantine of %s.\n", strings.Join(client.Quarantined, ", "))
	}
	return client.Trust(ctx)
}

func (s *session) shards(ctx context.Context) (*shards.Client, error) {
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	return shards.Connect(ctx, config)
}

// repair corrects what the epochs decide and, if the root shard was lost, creates its Workspaces.
func (s *session) repair(ctx context.Context, client *shards.Client, found []shards.Finding, rebuild bool) error {
	for _, f := range found {
		var err error
		switch {
		case f.Repairable():
			err = client.Repair(ctx, f)
		case rebuild && f.IsOfRoot():
			err = client.Adopt(ctx, f)
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("repairing the record of logical cluster %s: %w", f.Cluster, err)
		}
		_, _ = fmt.Fprintf(s.ErrOut, "Repaired the record of logical cluster %s in Workspace %s.\n", f.Cluster, f.Workspace)
	}
	return nil
}

func (s *session) printFindings(output format, found []shards.Finding) error {
	if output.structured() {
		if found == nil {
			found = []shards.Finding{}
		}
		return encode(s.Out, output, found)
	}
	if len(found) == 0 {
		_, err := fmt.Fprintln(s.Out, "No conflicts: all logical clusters are where their Workspaces say.")
		return err
	}
	rows := [][]string{{"KIND", "CLUSTER", "SHARD", "WORKSPACE", "PATH", "MESSAGE"}}
	for _, f := range found {
		rows = append(rows, []string{string(f.Kind), f.Cluster, f.Shard, f.Workspace, f.Path, f.Message})
	}
	return table(s.Out, rows...)
}
