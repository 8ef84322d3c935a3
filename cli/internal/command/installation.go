package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kcplane/kcp/cli/internal/installations"
)

// installations returns the commands about installations of kcp that the operator runs.
func (s *session) installations(invocation string) *cobra.Command {
	return group("installation", "Inspect installations of kcp that the operator runs",
		"Inspect installations of kcp in a Kubernetes cluster. Use the kubeconfig of the cluster in which the operator runs, not that of kcp.",
		"",
		s.installationStatus(invocation+" status"), s.installationReport(invocation+" report"), s.installationCheck(invocation+" check"))
}

// host returns a client for the cluster in which kcp runs, and the namespace of the flags or of the kubeconfig.
func (s *session) host() (client *installations.Client, namespace string, err error) {
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, "", fmt.Errorf("loading the kubeconfig: %w", err)
	}
	if namespace, _, err = s.flags.ToRawKubeConfigLoader().Namespace(); err != nil {
		return nil, "", fmt.Errorf("loading the kubeconfig: %w", err)
	}
	client, err = installations.New(config)
	return client, namespace, err
}

func (s *session) installationStatus(invocation string) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "status [ROOTSHARD]",
		Short: "Show the state of installations",
		Long: `Show the components of the installation of a RootShard, or of all RootShards in the namespace: their versions, ready pods and
certificates, the members of their etcds, the last snapshots, and what waits, with the next step.`,
		Example: examples(invocation, `
			# Show all installations in a namespace
			%[1]s --namespace kcp

			# Show the installation of the RootShard main for a program
			%[1]s main -o json`),
		Args:              atMost(1, "the name of a RootShard"),
		ValidArgsFunction: s.completeRootShards,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.showInstallations(cmd.Context(), strings.Join(args, ""), output)
		},
	}
	output.addChoice(cmd, []string{string(asJSON), string(asYAML)})
	return cmd
}

// completeRootShards completes the only argument of a command with the RootShards of the namespace.
func (s *session) completeRootShards(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	client, namespace, err := s.host()
	var names []string
	if err == nil {
		names, err = client.Names(ctx, namespace)
	}
	if err != nil {
		cobra.CompErrorln(err.Error())
	}
	return matching(names, typed), cobra.ShellCompDirectiveNoFileComp
}

func (s *session) showInstallations(ctx context.Context, name string, output format) error {
	client, namespace, err := s.host()
	if err != nil {
		return err
	}
	objects, err := client.Read(ctx, namespace)
	if err != nil {
		return err
	}
	all := installations.Summarize(namespace, name, objects)
	if len(all) == 0 && name != "" {
		return fmt.Errorf("there is no RootShard %q in namespace %s", name, namespace)
	}
	if output.structured() {
		return encode(s.Out, output, all)
	}
	if len(all) == 0 {
		if _, err := fmt.Fprintf(s.Out, "There is no RootShard in namespace %s.\n", namespace); err != nil {
			return err
		}
	}
	for i, in := range all {
		if i > 0 {
			_, _ = fmt.Fprintln(s.Out)
		}
		if err := s.printInstallation(in); err != nil {
			return err
		}
	}
	if name != "" {
		return nil
	}
	return s.printWaiting("WITHOUT AN INSTALLATION", installations.Astray(objects))
}

// printWaiting prints what objects wait for, if anything.
func (s *session) printWaiting(title string, all []installations.Waiting) error {
	if len(all) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(s.Out, "\n"+title)
	errs := []error{err}
	for _, w := range all {
		_, err := fmt.Fprintf(s.Out, "%s/%s: %s: %s\n", w.Kind, w.Name, w.Reason, w.Message)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// printInstallation prints an installation on one screen.
func (s *session) printInstallation(in installations.Installation) error {
	now := time.Now()
	state := "ready"
	if !in.Ready {
		state = "not ready"
	}
	_, _ = fmt.Fprintf(s.Out, "Installation %s/%s is %s. %s\n\n", in.Namespace, in.Name, state, in.URL)
	rows := [][]string{{"COMPONENT", "VERSION", "PODS", "CERTIFICATES UNTIL", "LOGICAL CLUSTERS", "STATE"}}
	for _, c := range in.Components {
		clusters := ""
		if c.LogicalClusters != nil {
			clusters = fmt.Sprint(*c.LogicalClusters)
		}
		rows = append(rows, []string{c.Kind + "/" + c.Name, dash(c.Version), dash(c.Pods), installations.Expiry(c.Expires, now), dash(clusters),
			c.State()})
	}
	errs := []error{table(s.Out, rows...)}
	if len(in.Members) > 0 {
		rows = [][]string{{"\nETCD MEMBER", "ROLE", "VERSION", "SIZE", "READY"}}
		for _, m := range in.Members {
			rows = append(rows, []string{m.Name, m.Role(), dash(m.Version), fmt.Sprintf("%d MiB", m.DBSize>>20), fmt.Sprint(m.Ready)})
		}
		errs = append(errs, table(s.Out, rows...))
	}
	if len(in.Backups) > 0 {
		rows = [][]string{{"\nETCD", "LAST SNAPSHOT", "SCHEDULE"}}
		for _, b := range in.Backups {
			last := ""
			if b.Last != nil {
				last = b.Last.UTC().Format(time.RFC3339)
			}
			rows = append(rows, []string{b.Cluster, dash(last), dash(b.Schedule)})
		}
		errs = append(errs, table(s.Out, rows...))
	}
	return errors.Join(append(errs, s.printWaiting("ATTENTION", in.Waiting))...)
}

// dash returns text, or a dash for an empty one.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (s *session) installationReport(invocation string) *cobra.Command {
	var file string
	limit := int64(installations.DefaultLogBytes)
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Collect the installations of a namespace for support",
		Long: `Collect the objects of the operator in a namespace, with their StatefulSets, pods, certificates, events and the ends of logs, in a
compressed archive. Of Secrets, it has only names, types and keys: their values are removed from all files, as are private keys, tokens and
passwords in URLs. Read the archive before you send it: names, addresses and paths remain in it. If the operator runs in another namespace,
its log is not in the archive: collect that namespace, too.`,
		Example: examples(invocation, `
			# Collect the installations of a namespace
			%[1]s --namespace kcp

			# With longer logs, in a file with a name of your choice
			%[1]s --namespace kcp --log-bytes 10000000 --file /tmp/kcp.tar.gz`),
		Args:              atMost(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.writeReport(cmd.Context(), file, limit)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "Name of the archive; it must not exist (default kcp-report-NAMESPACE-TIME.tar.gz)")
	cmd.Flags().Int64Var(&limit, "log-bytes", limit, "Maximum size of the end of each log, in bytes")
	return cmd
}

func (s *session) writeReport(ctx context.Context, name string, limit int64) error {
	if limit < 1 {
		return fmt.Errorf("--log-bytes must be positive, got %d", limit)
	}
	client, namespace, err := s.host()
	if err != nil {
		return err
	}
	now := time.Now()
	if name == "" {
		name = "kcp-report-" + namespace + "-" + now.UTC().Format("20060102-150405") + ".tar.gz"
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("creating the report: %w", err)
	}
	progress := newProgress(s.ErrOut)
	report := &installations.Report{Client: client, Namespace: namespace, LogBytes: limit, Now: now,
		Progress: func(what string) { progress.show("Reading " + what) }}
	files, err := report.Write(ctx, file)
	progress.end()
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	_, err = fmt.Fprintf(s.Out, "Wrote %d files to %s.\n", files, name)
	return err
}

func (s *session) installationCheck(invocation string) *cobra.Command {
	var output format
	var storageClass string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a cluster before the operator is installed",
		Long: `Check whether a Kubernetes cluster has what the operator and its etcds need: the version of Kubernetes, cert-manager, the
definitions of the operator, your permissions to install its chart, and a storage class. It changes nothing, and fails if a check fails.`,
		Example: examples(invocation, `
			# Check the cluster of the current context
			%[1]s --namespace kcp-operator

			# Check that a storage class exists, for a program
			%[1]s --storage-class fast -o json`),
		Args:              atMost(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.checkCluster(cmd.Context(), storageClass, output)
		},
	}
	cmd.Flags().StringVar(&storageClass, "storage-class", "", "StorageClass of the etcds (default: the default class of the cluster)")
	output.addChoice(cmd, []string{string(asJSON), string(asYAML)})
	return cmd
}

func (s *session) checkCluster(ctx context.Context, storageClass string, output format) error {
	client, namespace, err := s.host()
	if err != nil {
		return err
	}
	results := client.Check(ctx, installations.Options{Namespace: namespace, StorageClass: storageClass})
	failed := 0
	rows := [][]string{{"CHECK", "RESULT", "MESSAGE"}}
	for _, r := range results {
		if r.Status == installations.Failed {
			failed++
		}
		rows = append(rows, []string{r.Check, string(r.Status), r.Message})
	}
	if output.structured() {
		err = encode(s.Out, output, results)
	} else {
		err = table(s.Out, rows...)
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d checks failed; see the messages", failed, len(results))
	}
	return err
}
