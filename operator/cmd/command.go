// Package cmd is the command line of the operator.
package cmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kcplane/kcp/operator"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/metrics"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// WatchNamespace is the environment variable with the namespaces to watch, separated by commas. Empty: all.
const WatchNamespace = "WATCH_NAMESPACE"

// leaseName is the name of the leader election Lease.
const leaseName = "kcp-operator.operator.kcp.io"

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;update;patch;delete,namespace=kcp-operator
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch,namespace=kcp-operator

// Values of --pod-security.
const podsRestricted, podsPrivileged = "restricted", "privileged"

// settings has the values of the flags.
type settings struct {
	metricsAddress, probeAddress string
	metricsSecure                bool
	http2                        bool
	leaderElect                  bool
	leaderElectionNamespace      string
	image                        string
	etcdRepository               string
	podSecurity                  string
	podServiceAccounts           []string
	log                          zap.Options
}

// New returns the command kcp-operator.
func New() *cobra.Command {
	var s settings
	command := &cobra.Command{
		Use:   "kcp-operator",
		Short: "Run kcp, with its etcd and its certificates, on a Kubernetes cluster",
		Long: `kcp-operator turns RootShards, EtcdClusters and Kubeconfigs into what they ask for. The cluster must have cert-manager.

It works in the namespaces that the variable ` + WatchNamespace + ` lists, with commas between them, or else in all.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			config, err := ctrl.GetConfig()
			if err != nil {
				return err
			}
			return s.run(ctrl.SetupSignalHandler(), config)
		},
	}
	command.AddCommand(checkCommand())
	fs := command.Flags()
	fs.StringVar(&s.metricsAddress, "metrics-bind-address", "0", "Address that serves metrics, such as :8443. 0 disables metrics.")
	fs.BoolVar(&s.metricsSecure, "metrics-secure", true, "Serve metrics with TLS to authorized clients.")
	fs.BoolVar(&s.http2, "enable-http2", false, "Allow HTTP/2 for clients of the metrics.")
	fs.StringVar(&s.probeAddress, "health-probe-bind-address", ":8081", "Address that serves /healthz and /readyz.")
	fs.BoolVar(&s.leaderElect, "leader-elect", false,
		"Enable leader election: of several replicas, one leads and the others are on standby.")
	fs.StringVar(&s.leaderElectionNamespace, "leader-election-namespace", "",
		"Namespace of the leader election Lease; by default the namespace of the pod.")
	fs.StringVar(&s.image, "kcp-image", defaultImage(), "Default image of kcp for shards.")
	fs.StringVar(&s.etcdRepository, "etcd-repository", etcdcluster.DefaultRepository,
		"Default repository of the images of etcd, whose tags are versions.")
	fs.StringVar(&s.podSecurity, "pod-security", podsRestricted,
		"Limit for templates and volumes in specs: "+podsRestricted+", as in the Pod Security Standards, or "+
			podsPrivileged+", which leaves the limit to the namespace.")
	fs.StringSliceVar(&s.podServiceAccounts, "pod-service-accounts", nil,
		"Names of the ServiceAccounts whose tokens templates in specs may mount into pods.")
	logs := flag.NewFlagSet("", flag.ContinueOnError)
	s.log.BindFlags(logs)
	fs.AddGoFlagSet(logs)
	command.PersistentFlags().AddGoFlag(flag.CommandLine.Lookup(ctrlconfig.KubeconfigFlagName))
	return command
}

// defaultImage returns the image of kcp of the same release.
func defaultImage() string {
	tag := "latest"
	if build, ok := debug.ReadBuildInfo(); ok && strings.HasPrefix(build.Main.Version, "v") {
		tag = strings.ReplaceAll(build.Main.Version, "+", "-")
	}
	return "ghcr.io/kcplane/kcp:" + tag
}

// ownNamespace returns the namespace of the pod. It is empty outside of a cluster.
func ownNamespace() string {
	content, _ := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	return strings.TrimSpace(string(content))
}

func (s *settings) run(ctx context.Context, config *rest.Config) error {
	if s.podSecurity != podsRestricted && s.podSecurity != podsPrivileged {
		return fmt.Errorf("--pod-security must be %s or %s, got %q", podsRestricted, podsPrivileged, s.podSecurity)
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&s.log)))
	config.QPS = -1 // no limit: reconcilers send requests one after the other, and the API server has priority and fairness
	mgr, err := ctrl.NewManager(config, s.options(os.Getenv(WatchNamespace)))
	if err != nil {
		return err
	}
	assigns, err := assignsIDs(mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	if err := operator.Setup(ctx, mgr, operator.Config{
		Image: s.image, EtcdRepository: s.etcdRepository, Namespace: ownNamespace(),
		Pods: workload.Security{Privileged: s.podSecurity == podsPrivileged, ServiceAccounts: s.podServiceAccounts, AssignsIDs: assigns},
	}); err != nil {
		return err
	}
	if err := ctrlmetrics.Registry.Register(&metrics.Collector{Reader: mgr.GetCache(), Elected: mgr.Elected()}); err != nil {
		return err
	}
	ready := &readiness{
		cache: mgr.GetCache(), watched: operator.Watched(), elected: mgr.Elected(), live: mgr.GetAPIReader(), now: time.Now,
		log:   mgr.GetLogger().WithName("readyz").Info,
		lease: client.ObjectKey{Namespace: cmp.Or(s.leaderElectionNamespace, ownNamespace()), Name: leaseName},
	}
	if err := errors.Join(mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", ready.check)); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("%w (are cert-manager and the operator's own kinds installed?)", err)
	}
	return nil
}

// assignsIDs reports whether the cluster assigns users and groups to pods, as OpenShift does with SecurityContextConstraints.
func assignsIDs(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: "security.openshift.io", Kind: "SecurityContextConstraints"})
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

func (s *settings) options(namespaces string) ctrl.Options {
	o := operator.Options()
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = s.leaderElect, leaseName, s.leaderElectionNamespace
	o.LeaderElectionReleaseOnCancel = true
	o.HealthProbeBindAddress = s.probeAddress
	o.GracefulShutdownTimeout = new(20 * time.Second)
	o.Metrics = metricsserver.Options{BindAddress: s.metricsAddress, SecureServing: s.metricsSecure}
	if s.metricsSecure {
		o.Metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if !s.http2 {
		o.Metrics.TLSOpts = append(o.Metrics.TLSOpts, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	for _, namespace := range strings.FieldsFunc(namespaces, func(r rune) bool { return r == ',' || r == ' ' }) {
		if o.Cache.DefaultNamespaces == nil {
			o.Cache.DefaultNamespaces = map[string]cache.Config{}
		}
		o.Cache.DefaultNamespaces[namespace] = cache.Config{}
	}
	return o
}
