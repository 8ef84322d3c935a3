// Package cmd is the command line of the server.
package cmd

import (
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // metric of the leader
	_ "k8s.io/component-base/metrics/prometheus/restclient"              // metrics of clients
	_ "k8s.io/component-base/metrics/prometheus/version"                 // build information as a metric
	_ "k8s.io/component-base/metrics/prometheus/workqueue"               // metrics of queues
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"

	"github.com/kcplane/kcp/server/options"
)

// New returns the command kcp with its subcommands.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "kcp",
		Short: "A control plane with many Kubernetes-like clusters in one process",
		Long: `kcp serves many isolated, Kubernetes-like logical clusters from one process.
To kubectl, client-go, Helm and Argo CD, each of them is a cluster.

An installation can have several servers, which are its shards: each holds a part of the logical clusters. Users connect to front
proxies, which know where each logical cluster is. Shards read what they need of each other from a cache server.`,
		SilenceUsage: true,
	}
	registerFeatures()
	root.AddCommand(newStart(), newFrontProxy(), newCacheServer(), newVirtualWorkspaces())
	return root
}

// programs are the subcommands that are programs of their own upstream, by the names of these.
var programs = map[string]func() *cobra.Command{
	"kcp-front-proxy": newFrontProxy, "cache-server": newCacheServer, "virtual-workspaces": newVirtualWorkspaces,
}

// ForProgram returns the command for the name or path of the program: kcp with its subcommands, or the subcommand with that name.
func ForProgram(name string) *cobra.Command {
	subcommand, ok := programs[filepath.Base(name)]
	if !ok {
		return New()
	}
	registerFeatures()
	command := subcommand()
	command.Use, command.SilenceUsage = filepath.Base(name), true
	return command
}

// registerFeatures adds the feature gates, before any flag for them.
var registerFeatures = sync.OnceFunc(func() {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	options.AddFeatures(utilfeature.DefaultMutableFeatureGate)
})

// withFlags adds the flags of a program, and those that all programs have, by group.
func withFlags(command *cobra.Command, add func(*cliflag.NamedFlagSets)) *cobra.Command {
	var flags cliflag.NamedFlagSets
	add(&flags)
	verflag.AddFlags(flags.FlagSet("global"))
	globalflag.AddGlobalFlags(flags.FlagSet("global"), command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, fs := range flags.FlagSets {
		command.Flags().AddFlagSet(fs)
	}
	columns, _, _ := term.TerminalSize(command.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(command, flags, columns)
	return command
}
