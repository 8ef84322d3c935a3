package cmd

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"time"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server"
	"github.com/kcplane/kcp/server/internal/process/boundedlog"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/process/gctuner"
	"github.com/kcplane/kcp/server/options"
)

func newStart() *cobra.Command {
	opts := options.New()
	command := &cobra.Command{
		Use:   "start",
		Short: "Start the server, which can be one shard of an installation",
		Long: `Start the server. Without flags, it stores everything in .kcp, runs an embedded etcd, and serves on port 6443.
The kubeconfig of the administrators is .kcp/admin.kubeconfig.

With --peer-client-ca-file, the server is one shard of an installation: the root shard, or with --root-shard-kubeconfig-file another
shard. A server that has data becomes the root shard when it is started with the flags of a shard.`,
		Example: `  # Store everything in .kcp, serve on port 6443
  kcp start

  # Use an existing etcd cluster
  kcp start --etcd-servers=https://etcd:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key

  # Start a further shard of an installation
  kcp start --shard-name=west --root-shard-kubeconfig-file=root-shard.kubeconfig --shard-base-url=https://west:6443 \
    --shard-external-url=https://kcp.example.com --peer-client-ca-file=all-peers.crt --shard-client-cert-file=west-peer.crt \
    --shard-client-key-file=west-peer.key --tls-cert-file=west.crt --tls-private-key-file=west.key`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{}) // warnings to the server's own clients have no reader
			return opts.Generic.GenericServerRunOptions.ComponentGlobalsRegistry.Set()
		},
		RunE: func(command *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			return start(command, opts)
		},
	}
	return withFlags(command, opts.AddFlags)
}

func newVirtualWorkspaces() *cobra.Command {
	opts := options.NewVirtualWorkspaces()
	command := &cobra.Command{
		Use:   "virtual-workspaces",
		Short: "Serve the virtual workspaces of a shard in a process of their own",
		Long: `Serve the virtual workspaces of a shard, at /services/, and nothing else. The shard runs with --run-virtual-workspaces=false, and
with the URL of this process as --shard-virtual-workspace-url.

The flags are those of the shard: the same etcd, shard name, keys of service accounts, authorities of users and certificates of the shard.
Any number of these processes can serve a shard. They run no controllers.`,
		Example: `  # Serve the virtual workspaces of the shard root
  kcp virtual-workspaces --root-directory=views --secure-port=6444 --etcd-servers=https://etcd:2379 --etcd-cafile=ca.crt \
    --etcd-certfile=client.crt --etcd-keyfile=client.key --service-account-private-key-file=sa.key --client-ca-file=clients.crt`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			rest.SetDefaultWarningHandler(rest.NoWarnings{}) // warnings to the server's own clients have no reader
			return opts.Generic.GenericServerRunOptions.ComponentGlobalsRegistry.Set()
		},
		RunE: func(command *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			return start(command, opts)
		},
	}
	return withFlags(command, opts.AddFlags)
}

func start(command *cobra.Command, opts *options.Options) error {
	began := time.Now()
	started, err := prepare(opts.Generic.Logs)
	if err != nil {
		return err
	}
	for _, warning := range opts.Warnings(command.Flags(), utilfeature.DefaultFeatureGate) {
		klog.InfoS("A flag has no effect", decisionlog.Reason, warning)
	}
	if err := options.CheckFiles(command.Flags()); err != nil {
		return err
	}
	ctx := genericapiserver.SetupSignalContext()
	completed, err := opts.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Generic.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	if opts.ProfilerAddress != "" {
		listener, err := net.Listen("tcp", opts.ProfilerAddress)
		if err != nil {
			return fmt.Errorf("--profiler-address: %w", err)
		}
		go serveProfiles(listener)
	}
	klog.InfoS("Starting kcp", decisionlog.Version, server.Version(), decisionlog.Directory, completed.RootDirectory)
	return server.Run(ctx, completed, func() {
		started()
		greet(command.ErrOrStderr(), completed, time.Since(began))
	})
}

const (
	// detailed is the verbosity at which the log has the details of a start.
	detailed = 2
	// unbounded is the verbosity at which the log has no limit: the reader is looking for something.
	unbounded = 4
)

// prepare adapts the garbage collector, and configures the log. The caller calls started when the server is ready.
func prepare(logs *logsapi.LoggingConfiguration) (started func(), err error) {
	returnMemory := gctuner.Tune()
	logAll, err := applyLogs(logs)
	return func() { logAll(); returnMemory() }, err
}

// applyLogs configures the log. The caller calls started when the server is ready.
func applyLogs(config *logsapi.LoggingConfiguration) (started func(), err error) {
	var streams *logsapi.LoggingOptions
	started = func() {}
	if config.Verbosity < unbounded {
		errors, information := boundedlog.New(os.Stderr), boundedlog.New(os.Stdout)
		streams = &logsapi.LoggingOptions{ErrorStream: errors, InfoStream: information}
		if config.Verbosity < detailed {
			errors.Starting()
			information.Starting()
			started = func() {
				errors.Started()
				information.Started()
			}
		}
	}
	return started, logsapi.ValidateAndApplyWithOptions(config, streams, utilfeature.DefaultFeatureGate)
}

func serveProfiles(listener net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	klog.ErrorS(s.Serve(listener), "Serving profiles failed")
}

// greet reports that the server is ready: to a person, with commands to try next, or as an entry of the log if its format is for programs.
func greet(out io.Writer, opts options.Completed, took time.Duration) {
	if opts.Generic.Logs.Format != logsapi.DefaultLogFormat {
		klog.InfoS("kcp is ready", decisionlog.URL, opts.ShardExternalURL, decisionlog.Kubeconfig, opts.KubeconfigPath,
			decisionlog.Seconds, took.Seconds())
		return
	}
	if opts.OnlyVirtualWorkspaces {
		fmt.Fprintf(out, "\nThe virtual workspaces of shard %q are served (%.1f s).\n\nPress Ctrl+C to stop.\n\n", opts.ShardName, took.Seconds())
		return
	}
	fmt.Fprintf(out, "\nkcp is ready at %s (%.1f s).", opts.ShardExternalURL, took.Seconds())
	if !opts.Sharding.IsRoot() {
		fmt.Fprintf(out, " It is shard %q of an installation, whose workspace root is on the root shard.", opts.ShardName)
		fmt.Fprint(out, "\n\nPress Ctrl+C to stop.\n\n")
		return
	}
	if !opts.Batteries.HasAny(options.BatteryAdmin, options.BatteryUser) {
		fmt.Fprint(out, "\n\nPress Ctrl+C to stop.\n\n")
		return
	}
	fmt.Fprintf(out, ` In another terminal:

  export KUBECONFIG=%s
  kubectl get namespaces        # in the logical cluster "root"
  kubectl api-resources

Press Ctrl+C to stop.

`, opts.KubeconfigPath)
}
