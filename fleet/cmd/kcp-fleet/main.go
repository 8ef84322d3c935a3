// Command kcp-fleet runs objects of workspaces on attached Kubernetes clusters: the controller beside kcp, and the agent on each cluster.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // images have no certificate authorities
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kcplane/kcp/fleet/internal/agent"
	"github.com/kcplane/kcp/fleet/internal/controller"
	"github.com/kcplane/kcp/server/virtual/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(klog.Background())
	root := &cobra.Command{
		Use: "kcp-fleet", Short: "Run objects of workspaces on attached Kubernetes clusters", SilenceErrors: true, SilenceUsage: true,
	}
	root.AddCommand(controllerCommand(), agentCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func controllerCommand() *cobra.Command {
	options := controller.Options{Program: program.NewOptions()}
	cmd := &cobra.Command{
		Use: "controller", Short: "Assign namespaces of all workspaces to clusters, and serve the agents", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return controller.Run(cmd.Context(), options) },
	}
	options.Program.AddFlags(cmd.Flags())
	cmd.Flags().DurationVar(
		&options.Lost,
		"lost-after",
		40*time.Second,
		"Time without a heartbeat of its agent after which a cluster is not ready.",
	)
	cmd.Flags().StringVar(
		&options.StorageCAFile,
		"virtual-storage-client-ca-file",
		"",
		"File with the authority of the certificate with which kcp reads pods (its flag --virtual-storage-client-cert-file). "+
			"Use an authority that issues no other certificates. If it is empty, workspaces have no pods.",
	)
	cmd.Flags().StringVar(
		&options.StorageName,
		"virtual-storage-client-name",
		"",
		"Common name of the certificate with which kcp reads pods.",
	)
	cmd.Flags().IntVar(&options.MovesPerMinute, "max-moves-per-minute", 60, "Number of namespaces that move to another cluster in a minute.")
	return cmd
}

func agentCommand() *cobra.Command {
	options := agent.Options{}
	cmd := &cobra.Command{
		Use: "agent", Short: "Run on this cluster what the fleet assigns to it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.Cluster == "" || options.URL == "" {
				return fmt.Errorf("--cluster and --fleet-url are required")
			}
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			options.Holder = fmt.Sprintf("%s-%d", host, os.Getpid())
			return agent.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&options.Cluster, "cluster", "", "Name of the Cluster in the workspace of the fleet.")
	flags.StringVar(&options.Kubeconfig, "kubeconfig", "", "Kubeconfig file of the cluster. Defaults to the service account of the pod.")
	flags.StringVar(
		&options.URL,
		"fleet-url",
		"",
		"URL of the view of the cluster, such as https://fleet.example.com:6444/services/fleet/<cluster>.",
	)
	flags.StringVar(&options.CAFile, "fleet-ca-file", "", "File with the certificate authority of the fleet. Defaults to those of the system.")
	flags.StringVar(&options.TokenFile, "bootstrap-token-file", "", "File with the token for the first certificate.")
	return cmd
}
