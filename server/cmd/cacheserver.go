package cmd

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/options"
)

func newCacheServer() *cobra.Command {
	opts := options.NewCacheServer()
	command := &cobra.Command{
		Use:   "cache-server",
		Short: "Start a cache server, from which the shards of an installation read each other's global objects",
		Long: `Start a cache server. Each shard of an installation writes the objects that other shards must be able to read, and reads those
of the others. A cache server can be emptied at any time: the shards fill it again.

Several cache servers can use one etcd. Without --etcd-servers, the cache server runs an embedded etcd.`,
		Example: `  # Serve the shards with certificates of an authority
  kcp cache-server --peer-client-ca-file=peers.crt

  # Two replicas use an existing etcd cluster
  kcp cache-server --peer-client-ca-file=peers.crt --etcd-servers=https://etcd:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt \
    --etcd-keyfile=client.key`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			return startCacheServer(command, opts)
		},
	}
	return withFlags(command, opts.AddFlags)
}

func startCacheServer(command *cobra.Command, opts *options.CacheServer) error {
	started, err := prepare(opts.Logs)
	if err != nil {
		return err
	}
	if err := options.CheckFiles(command.Flags()); err != nil {
		return err
	}
	completed, err := opts.Complete()
	if err != nil {
		return err
	}
	if opts.ProfilerAddress != "" {
		listener, err := net.Listen("tcp", opts.ProfilerAddress)
		if err != nil {
			return fmt.Errorf("--profiler-address: %w", err)
		}
		go serveProfiles(listener)
	}
	klog.InfoS("Starting the cache server", decisionlog.Version, server.Version(), decisionlog.Directory, completed.RootDirectory)
	return server.RunCacheServer(genericapiserver.SetupSignalContext(), completed, func() {
		started()
		klog.InfoS("The cache server is ready", decisionlog.URL, fmt.Sprintf("https://%s",
			net.JoinHostPort(opts.Serving.BindAddress.String(), fmt.Sprint(opts.Serving.BindPort))))
	})
}
