// Package cmd is the command line of the server.
package cmd

import (
	"github.com/spf13/cobra"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // metric of the leader
	_ "k8s.io/component-base/metrics/prometheus/restclient"              // metrics of clients
	_ "k8s.io/component-base/metrics/prometheus/version"                 // build information as a metric
	_ "k8s.io/component-base/metrics/prometheus/workqueue"               // metrics of queues
)

// New returns the command kcp with its subcommands.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "kcp",
		Short: "A control plane with many Kubernetes-like clusters in one process",
		Long: `kcp serves many isolated, Kubernetes-like logical clusters from one process.
To kubectl, client-go, Helm and Argo CD, each of them is a cluster.`,
		SilenceUsage: true,
	}
	root.AddCommand(newStart())
	return root
}
