package cmd

import (
	"time"

	"github.com/spf13/cobra"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server"
	"github.com/kcplane/kcp/server/internal/frontproxy"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/options"
)

func newFrontProxy() *cobra.Command {
	opts := frontproxy.NewOptions()
	command := &cobra.Command{
		Use:   "front-proxy",
		Short: "Start a front proxy, which forwards requests to the shards of an installation",
		Long: `Start a front proxy. It authenticates users, and forwards each request to the shard that holds its workspace.
Its client certificate for the shards contains the URI kcp://proxy/<name>. Any number of front proxies can serve an installation.

Without flags for users, the front proxy sends tokens on to the shards, which authenticate them.`,
		Example: `  # Serve an installation. The kubeconfig has the URL of the root shard, and the client certificate of this front proxy
  kcp front-proxy --root-kubeconfig=root.kubeconfig --client-ca-file=client-ca.crt \
    --tls-cert-file=proxy.crt --tls-private-key-file=proxy.key --secure-port=6443`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			return startFrontProxy(command, opts)
		},
	}
	return withFlags(command, opts.AddFlags)
}

func startFrontProxy(command *cobra.Command, opts *frontproxy.Options) error {
	began := time.Now()
	started, err := prepare(opts.Logs)
	if err != nil {
		return err
	}
	if err := options.CheckFiles(command.Flags()); err != nil {
		return err
	}
	opts.Version = server.VersionInfo()
	klog.InfoS("Starting the front proxy", decisionlog.Version, server.Version(), decisionlog.Directory, opts.RootDirectory)
	return frontproxy.Run(genericapiserver.SetupSignalContext(), opts, func() {
		started()
		klog.InfoS("The front proxy is ready", decisionlog.Seconds, time.Since(began).Seconds())
	})
}
