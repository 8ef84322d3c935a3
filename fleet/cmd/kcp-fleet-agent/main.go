// Command kcp-fleet-agent runs on a cluster what the fleet assigns to it. It is a program of its own, because it is small.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // images have no certificate authorities

	"github.com/kcplane/kcp/fleet/internal/agent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	options := agent.Options{}
	cmd := &cobra.Command{
		Use: "kcp-fleet-agent", Short: "Run on this cluster what the fleet assigns to it", Args: cobra.NoArgs,
		SilenceErrors: true, SilenceUsage: true,
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
