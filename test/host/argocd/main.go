// Command argocd is Argo CD's application controller and its repo server in one program, with a Redis in memory that both use.
package main

import (
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{Use: "argocd", SilenceUsage: true}
	root.AddCommand(controller.NewCommand(), reposerver.NewCommand(), redis())
	if err := root.Execute(); err != nil {
		os.Exit(1)
	}
}

// redis returns the command that serves a Redis until it is killed.
func redis() *cobra.Command {
	var address string
	command := &cobra.Command{
		Use:   "redis",
		Short: "Serve a Redis in memory",
		RunE: func(*cobra.Command, []string) error {
			if err := miniredis.NewMiniRedis().StartAddr(address); err != nil {
				return fmt.Errorf("serving Redis at %s: %w", address, err)
			}
			select {}
		},
	}
	command.Flags().StringVar(&address, "address", "127.0.0.1:6379", "address to listen at")
	return command
}
