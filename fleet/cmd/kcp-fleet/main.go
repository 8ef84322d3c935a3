// Command kcp-fleet runs objects of workspaces on attached Kubernetes clusters: it is the controller beside kcp.
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
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kcplane/kcp/fleet/internal/comparison"
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
	root.AddCommand(controllerCommand(), compareCommand(), checkCommand())
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

func compareCommand() *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use: "compare", Short: "Compare the exported schemas in the input with those of a cluster; the agent runs this",
		Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("--kubeconfig: %w", err)
			}
			return comparison.Run(cmd.Context(), config, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "Kubeconfig file of the cluster. Defaults to the service account of the pod.")
	return cmd
}
