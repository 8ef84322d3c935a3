// Package options turns command line flags into the configuration of a server: upstream's groups of flags, less those
// that would take the server's own choices away, and kcp's.
package options

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	controlplaneoptions "k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/storage/etcd"
)

// DefaultIssuer is in the iss claim of service account tokens.
const DefaultIssuer = "https://kcp.default.svc"

// Options of kcp start.
type Options struct {
	// Generic are upstream's.
	Generic *controlplaneoptions.Options
	// EmbeddedEtcd is used unless Generic.Etcd names servers.
	EmbeddedEtcd etcd.Config
	// Authorization chooses and configures the steps of authorization.
	Authorization Authorization

	// RootDirectory holds every file that the server makes.
	RootDirectory string
	// KubeconfigPath and AdminTokenPath are relative to RootDirectory unless absolute.
	KubeconfigPath, AdminTokenPath string
	// ShardName is the name of this server among those that share a tree of workspaces.
	ShardName string
	// ShardBaseURL is how other shards and the front proxy reach this server, ShardExternalURL how users do.
	ShardBaseURL, ShardExternalURL string
	// ShardVirtualWorkspaceURL is where users reach the virtual workspaces of this server.
	ShardVirtualWorkspaceURL string
	// ProfilerAddress, host:port, serves pprof without authentication. Empty means none.
	ProfilerAddress string
	// Homes are the workspaces that users get by asking for them.
	Homes Homes
	// MountProxy tells where mounted workspaces may lead.
	MountProxy MountProxy
	// VirtualStorage tells where endpoint slices of providers may lead.
	VirtualStorage VirtualStorage
	// TenantWebhookNetworks are where the server calls the webhooks and issuers of tenants, for outbound.NewNetworks.
	TenantWebhookNetworks []string
	// TotalObjectLimit is how many objects a logical cluster may hold unless it says otherwise; zero is any number.
	TotalObjectLimit int64
	// MaxRequests and MaxWatches are how many a logical cluster may have open at a time; zero is any number.
	MaxRequests, MaxWatches int
	// MaxAllWatches is how many watches all tenants may have open; zero is any number.
	MaxAllWatches int
	// RequestMemory is how many bytes of memory the bodies and answers of all requests of tenants may take; zero is any number.
	RequestMemory int64
	// MaxLargeObjects is how many bytes of memory large objects of all tenants may take that the server keeps; zero is any number.
	MaxLargeObjects int64
	// StalledClientTimeout is how long a client may keep the server waiting without progress.
	StalledClientTimeout time.Duration
	// ObjectCountInterval is how long a count of the objects of a cluster is good.
	ObjectCountInterval time.Duration
	// RunControllers tells whether this process runs the controllers.
	RunControllers bool
	// RootCAFile has the certificates that service accounts verify the server with; empty for those that it serves with.
	RootCAFile string
	// SecretTokenKeyFile has the key that signs the tokens of Secrets.
	SecretTokenKeyFile string
	// LeaderElection tells whether it does so only while it leads others.
	LeaderElection LeaderElection
	// BatteriesIncluded is a list for Completed.Batteries: names, or +name and -name for more or less than the defaults.
	BatteriesIncluded []string
}

// Homes are the options of home workspaces.
type Homes struct {
	Enabled bool
	// CreatorGroups are those whose members get a home.
	CreatorGroups []string
}

// Authorization are the options of the chain of authorizers.
type Authorization struct {
	AlwaysAllowPaths       []string
	Order                  []string
	WebhookConfigFile      string
	WebhookVersion         string
	WebhookAuthorizedTTL   time.Duration
	WebhookUnauthorizedTTL time.Duration
	// MaxStaleness is how far roles, bindings and workspaces in memory may be behind etcd; zero is without limit.
	MaxStaleness time.Duration
}

// withheld are upstream's flags that would change what a logical cluster is, or that have no meaning here.
var withheld = sets.New(
	"enable-priority-and-fairness",
	"watch-cache", "watch-cache-sizes", "default-watch-cache-size", "storage-backend", "storage-media-type",
	"delete-collection-workers", "etcd-count-metric-poll-period", "etcd-servers-overrides", "lease-reuse-duration-seconds",
	"service-account-signing-endpoint",
)

// usages of upstream's flags that mean something else here.
var usages = map[string]string{
	"max-requests-inflight": "Number of reading requests of all tenants that may be in flight. A tenant may have as many as are left: one " +
		"tenant half of them at the most, " +
		"two a third each, and so on. Watches, and requests of administrators, are not counted. 0: any number.",
	"max-mutating-requests-inflight": "The same for requests that write.",
	"cert-dir": "Directory of the serving certificate that the server makes for itself, the root directory by " +
		"default. Not used with --tls-cert-file and --tls-private-key-file.",
}

// watchGrace is how long a server that stops takes to end its watches, 200 a second or more. Without it, one watch delays a stop by a
// minute.
const watchGrace = 5 * time.Second

// New returns the defaults.
func New() *Options {
	generic := controlplaneoptions.NewOptions()
	generic.SystemNamespaces = nil
	generic.SecureServing.BindPort = 6443
	generic.SecureServing.ServerCert.PairName = "apiserver"
	generic.SecureServing.ServerCert.CertDirectory = "" // the root directory
	generic.Etcd.StorageConfig.Transport.ServerList = nil
	generic.Etcd.EnableWatchCache = false
	generic.Etcd.SkipHealthEndpoints = true
	generic.Features.EnablePriorityAndFairness = false
	generic.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = watchGrace
	generic.GenericServerRunOptions.MaxRequestsInFlight = 3000
	generic.GenericServerRunOptions.MaxMutatingRequestsInFlight = 1500
	generic.Authorization.Modes = []string{"AlwaysDeny"} // replaced by our own chain
	generic.Authentication.ServiceAccounts.Issuers = []string{DefaultIssuer}
	generic.Authentication.Anonymous.Allow = true
	// Upstream's cache of tokens authenticates without the context of the request, and so without its logical cluster.
	generic.Authentication.TokenSuccessCacheTTL, generic.Authentication.TokenFailureCacheTTL = 0, 0
	generic.Admission.GenericAdmission.DefaultOffPlugins = sets.New(kubeoptions.AllOrderedPlugins...)
	return &Options{
		Generic:        generic,
		RootDirectory:  ".kcp",
		KubeconfigPath: "admin.kubeconfig",
		AdminTokenPath: ".admin-token-store",
		ShardName:      "root",
		Homes:          Homes{Enabled: true, CreatorGroups: []string{user.AllAuthenticated}},
		MaxRequests:    400, MaxWatches: 2000, MaxAllWatches: 30_000, RequestMemory: 256 << 20, MaxLargeObjects: 4 << 30,
		RunControllers: true, ObjectCountInterval: time.Minute, StalledClientTimeout: 30 * time.Second,
		LeaderElection: newLeaderElection(), BatteriesIncluded: slices.Clone(defaultBatteries),
		Authorization: Authorization{
			AlwaysAllowPaths:       []string{"/healthz", "/readyz", "/livez"},
			Order:                  []string{"AlwaysAllowGroups", "AlwaysAllowPaths", "RBAC", "Webhook"},
			WebhookVersion:         "v1",
			WebhookAuthorizedTTL:   5 * time.Minute,
			WebhookUnauthorizedTTL: 30 * time.Second,
			MaxStaleness:           10 * time.Second,
		},
	}
}

// AddFlags registers every flag, by group.
func (o *Options) AddFlags(sets *flag.NamedFlagSets) {
	o.addKCPFlags(sets)
	add := func(group string, register func(*pflag.FlagSet)) {
		all := pflag.NewFlagSet(group, pflag.ContinueOnError)
		register(all)
		all.VisitAll(func(f *pflag.Flag) {
			if usage, ok := usages[f.Name]; ok {
				f.Usage = usage
			}
			if !withheld.Has(f.Name) {
				sets.FlagSet(group).AddFlag(f)
			}
		})
	}
	g := o.Generic
	add("generic", g.GenericServerRunOptions.AddUniversalFlags)
	add("etcd", g.Etcd.AddFlags)
	add("secure serving", g.SecureServing.AddFlags)
	add("auditing", g.Audit.AddFlags)
	add("features", g.Features.AddFlags)
	add("authentication", g.Authentication.AddFlags)
	add("metrics", g.Metrics.AddFlags)
	add("logs", func(fs *pflag.FlagSet) { logsapi.AddFlags(g.Logs, fs) })
	add("traces", g.Traces.AddFlags)
	misc := sets.FlagSet("misc")
	misc.DurationVar(&g.EventTTL, "event-ttl", g.EventTTL, "How long events are kept.")
	misc.StringVar(&g.ServiceAccountSigningKeyFile, "service-account-signing-key-file", g.ServiceAccountSigningKeyFile,
		"File with the private key that signs service account tokens; --service-account-private-key-file by default, or sa.key in the root "+
			"directory.")
}

func (o *Options) addKCPFlags(sets *flag.NamedFlagSets) {
	fs := sets.FlagSet("kcp")
	fs.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory, "Directory for everything that the server stores.")
	fs.StringVar(&o.ShardName, "shard-name", o.ShardName, "Name of this shard.")
	fs.StringVar(&o.ShardBaseURL, "shard-base-url", o.ShardBaseURL, "URL at which other shards and the front proxy reach this one.")
	fs.StringVar(&o.ShardVirtualWorkspaceURL, "shard-virtual-workspace-url", o.ShardVirtualWorkspaceURL,
		"URL at which users reach the virtual workspaces of this shard; --shard-base-url by default.")
	fs.StringVar(&o.ShardExternalURL, "shard-external-url", o.ShardExternalURL,
		"URL at which users reach the installation; --shard-base-url by default.")
	fs.StringVar(&o.ProfilerAddress, "profiler-address", o.ProfilerAddress,
		"Address (host:port) that serves profiles without authentication; none by default.")
	outbound.AddNetworksFlag(fs, &o.TenantWebhookNetworks)
	fs.Int64Var(&o.TotalObjectLimit, "logical-cluster-total-object-limit", o.TotalObjectLimit, "Number of objects that a logical cluster "+
		"may hold, unless its annotation core.kcp.io/max-total-objects says otherwise. 0: any number.")
	fs.IntVar(&o.MaxRequests, "logical-cluster-max-requests-inflight", o.MaxRequests,
		"Number of requests, other than watches, that a logical cluster may have in flight; in root, every user. 0: any number.")
	fs.IntVar(&o.MaxWatches, "logical-cluster-max-watches", o.MaxWatches,
		"Number of watches that a logical cluster may have open; in root, every user. 0: any number.")
	fs.IntVar(&o.MaxAllWatches, "max-watches", o.MaxAllWatches, "Number of watches that all tenants may have open; each takes about 90 KiB "+
		"of memory. What is left is shared: a quarter is for tenants with few, and of the rest one tenant gets half at the most, others half "+
		"of what it leaves. 0: any number.")
	fs.Int64Var(&o.RequestMemory, "max-request-memory-bytes", o.RequestMemory, "Memory, in bytes, that the bodies and answers of requests "+
		"in flight may take, as estimated. What is left is shared: one tenant gets half of it at the most, others half of the rest. 0: any "+
		"amount.")
	fs.Int64Var(&o.MaxLargeObjects, "max-large-object-bytes", o.MaxLargeObjects, "Memory, in bytes, that large definitions, roles, "+
		"bindings, webhooks and policies of all tenants may take, as estimated; tenants cannot store more, administrators can. What is left is "+
		"shared: one tenant gets half of it at the most, others half of the rest. 0: any amount.")
	fs.DurationVar(&o.StalledClientTimeout, "stalled-client-timeout", o.StalledClientTimeout, "How long a client may keep a request waiting "+
		"until the request ends: while it reads less than 256 KiB of an answer, or sends less than 16 KiB of a body. Watches without events "+
		"are not affected.")
	fs.DurationVar(&o.ObjectCountInterval, "logical-cluster-object-count-scan-interval", o.ObjectCountInterval,
		"Age at which the count of the objects of a logical cluster that is written to is compared with what is stored.")
	fs.StringSliceVar(&o.BatteriesIncluded, "batteries-included", o.BatteriesIncluded,
		"What the installation starts with: any of "+strings.Join(batteries, ", ")+
			"; or +name and -name, for more or less than the default.")

	fs = sets.FlagSet("kcp authentication")
	fs.StringVar(&o.KubeconfigPath, "kubeconfig-path", o.KubeconfigPath,
		"Where the administrators' kubeconfig is written, relative to the root directory.")
	fs.StringVar(&o.AdminTokenPath, "authentication-admin-token-path", o.AdminTokenPath,
		"Where the hash of the shard administrator's token is kept, relative to the root directory.")

	fs = sets.FlagSet("kcp authorization")
	a := &o.Authorization
	fs.StringSliceVar(&a.AlwaysAllowPaths, "authorization-always-allow-paths", a.AlwaysAllowPaths,
		"Paths of the server that everybody may read.")
	fs.StringSliceVar(&a.Order, "authorization-order", a.Order,
		"Order of the authorizers: AlwaysAllowGroups, AlwaysAllowPaths, RBAC, Webhook.")
	fs.StringVar(&a.WebhookConfigFile, "authorization-webhook-config-file", a.WebhookConfigFile,
		"Kubeconfig of a webhook that authorizes what the authorizers before it have no opinion on.")
	fs.StringVar(&a.WebhookVersion, "authorization-webhook-version", a.WebhookVersion,
		"API version of the SubjectAccessReviews that the webhook gets.")
	fs.DurationVar(&a.WebhookAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", a.WebhookAuthorizedTTL,
		"How long an approval of the webhook is remembered.")
	fs.DurationVar(&a.WebhookUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", a.WebhookUnauthorizedTTL,
		"How long a refusal of the webhook is remembered.")

	fs.DurationVar(&a.MaxStaleness, "authorization-max-staleness", a.MaxStaleness, "How far roles, bindings and workspaces in memory may be "+
		"behind etcd. When etcd cannot be reached for longer, requests are refused with 503. 0: without limit.")

	fs = sets.FlagSet("kcp home workspaces")
	fs.BoolVar(&o.Homes.Enabled, "enable-home-workspaces", o.Homes.Enabled,
		"Give users a workspace of their own when they ask for it, as kubectl ws ~ does.")
	fs.StringSliceVar(&o.Homes.CreatorGroups, "home-workspaces-home-creator-groups", o.Homes.CreatorGroups,
		"Groups whose members get a home workspace.")

	o.MountProxy.addFlags(sets.FlagSet("kcp mounts"))
	o.VirtualStorage.addFlags(sets.FlagSet("kcp virtual storage"))

	fs = sets.FlagSet("kcp controllers")
	fs.BoolVar(&o.RunControllers, "run-controllers", o.RunControllers, "Run the controllers in this process.")
	fs.StringVar(&o.RootCAFile, "root-ca-file", o.RootCAFile, "Certificate authorities that ConfigMaps kube-root-ca.crt and Secrets of "+
		"service accounts tell clients to verify this server with; its serving certificate by default.")
	fs.StringVar(&o.SecretTokenKeyFile, "service-account-private-key-file", o.SecretTokenKeyFile,
		"File with the private key that signs the tokens of Secrets, and other service account tokens unless "+
			"--service-account-signing-key-file is given, which is the default.")
	o.LeaderElection.addFlags(fs)

	fs = sets.FlagSet("embedded etcd")
	e := &o.EmbeddedEtcd
	fs.StringVar(&e.Directory, "embedded-etcd-directory", e.Directory,
		"Directory of the embedded etcd; etcd-server in the root directory by default.")
	fs.IntVar(&e.ClientPort, "embedded-etcd-client-port", e.ClientPort,
		"Loopback TCP port, without encryption, for clients of the embedded etcd. 0: none, only the server reaches it.")
	fs.IntVar(&e.PeerPort, "embedded-etcd-peer-port", e.PeerPort,
		"Loopback TCP port, without encryption, for peers of the embedded etcd. 0: none.")
	fs.Int64Var(&e.WALSizeBytes, "embedded-etcd-wal-size-bytes", e.WALSizeBytes,
		"Size that a segment of the write-ahead log is preallocated to. 0: etcd's default.")
	fs.Int64Var(&e.QuotaBackendBytes, "embedded-etcd-quota-backend-bytes", e.QuotaBackendBytes,
		"Size of the embedded etcd at which the server refuses what would make it larger. 0: 64 GiB.")
}

// Completed are options with every default resolved, ready to run.
type Completed struct {
	*Options
	Generic controlplaneoptions.CompletedOptions
	// Embedded tells whether the etcd is the server's own.
	Embedded bool
	// Batteries are what the installation starts with.
	Batteries sets.Set[string]
	// RootCA are the certificates that service accounts verify the server with, in PEM; empty for those that it serves with.
	RootCA []byte
}

// minStaleness is the least that may be set: the revision of etcd is read ten times in it.
const minStaleness = 2 * time.Second

// validate tells what is wrong with an option whatever the others are.
func (o *Options) validate() error {
	if err := o.LeaderElection.validate(); err != nil {
		return err
	}
	if err := o.MountProxy.Files.Validate(); err != nil {
		return err
	}
	if err := o.VirtualStorage.Files.Validate(); err != nil {
		return err
	}
	if s := o.Authorization.MaxStaleness; s != 0 && s < minStaleness {
		return fmt.Errorf("--authorization-max-staleness: %s is less than %s", s, minStaleness)
	}
	if o.TotalObjectLimit < 0 {
		return fmt.Errorf("--logical-cluster-total-object-limit: %d is less than 0", o.TotalObjectLimit)
	}
	if o.MaxRequests < 0 || o.MaxWatches < 0 || o.MaxAllWatches < 0 {
		return fmt.Errorf("--logical-cluster-max-requests-inflight, --logical-cluster-max-watches and --max-watches: %d, %d and %d: none may "+
			"be less than 0", o.MaxRequests, o.MaxWatches, o.MaxAllWatches)
	}
	if o.MaxLargeObjects < 0 {
		return fmt.Errorf("--max-large-object-bytes: %d is less than 0", o.MaxLargeObjects)
	}
	if _, err := outbound.NewNetworks(o.TenantWebhookNetworks); err != nil {
		return err
	}
	if o.StalledClientTimeout < time.Second {
		return fmt.Errorf("--stalled-client-timeout: must be 1s or more, got %s", o.StalledClientTimeout)
	}
	if o.ObjectCountInterval <= 0 {
		return fmt.Errorf("--logical-cluster-object-count-scan-interval: %s is no time", o.ObjectCountInterval)
	}
	return nil
}

// Complete resolves what depends on other options, and makes the root directory and the signing key.
func (o *Options) Complete(ctx context.Context) (Completed, error) {
	included, err := parseBatteries(o.BatteriesIncluded)
	if err == nil {
		err = o.validate()
	}
	if err != nil {
		return Completed{}, err
	}
	root, err := filepath.Abs(o.RootDirectory)
	if err != nil {
		return Completed{}, err
	}
	o.RootDirectory = root
	if err := os.MkdirAll(root, 0o700); err != nil {
		return Completed{}, fmt.Errorf("--root-directory: %w", err)
	}
	below := func(path *string, standard string) {
		if *path == "" {
			*path = standard
		}
		if !filepath.IsAbs(*path) {
			*path = filepath.Join(root, *path)
		}
	}
	below(&o.KubeconfigPath, "admin.kubeconfig")
	below(&o.AdminTokenPath, ".admin-token-store")
	below(&o.EmbeddedEtcd.Directory, "etcd-server")
	g := o.Generic
	if err := o.completeKeys(root); err != nil {
		return Completed{}, err
	}
	rootCA, err := o.readRootCA()
	if err != nil {
		return Completed{}, err
	}
	embedded := len(g.Etcd.StorageConfig.Transport.ServerList) == 0
	if embedded {
		// Satisfies upstream's validation. The storage backend has its own client and dials nothing of this list.
		g.Etcd.StorageConfig.Transport.ServerList = []string{"embedded"}
	}
	if bind := g.SecureServing.BindAddress; g.GenericServerRunOptions.ExternalHost == "" && (bind.IsUnspecified() || bind.IsLoopback()) {
		g.GenericServerRunOptions.ExternalHost = "localhost"
	}
	if g.SecureServing.ServerCert.CertDirectory == "" {
		g.SecureServing.ServerCert.CertDirectory = root
	}
	if err := o.completeServingCertificate(g.SecureServing.ServerCert.CertDirectory); err != nil {
		return Completed{}, fmt.Errorf("serving certificate: %w", err)
	}
	generic, err := g.Complete(ctx, nil, nil)
	if err != nil {
		return Completed{}, err
	}
	served := net.JoinHostPort(generic.GenericServerRunOptions.ExternalHost, fmt.Sprint(g.SecureServing.BindPort))
	if err := o.completeURLs("https://" + served); err != nil {
		return Completed{}, err
	}
	if len(o.TenantWebhookNetworks) == 0 {
		o.TenantWebhookNetworks = outbound.StandardNetworks(o.ShardBaseURL, o.ShardExternalURL)
	}
	return Completed{Options: o, Generic: generic, Embedded: embedded, Batteries: included, RootCA: rootCA}, nil
}

// completeServingCertificate makes a certificate in the directory unless the options name one.
func (o *Options) completeServingCertificate(directory string) error {
	serving := o.Generic.SecureServing.SecureServingOptions
	if pair := serving.ServerCert.CertKey; pair.CertFile != "" || pair.KeyFile != "" {
		return nil
	}
	if err := o.Generic.GenericServerRunOptions.DefaultAdvertiseAddress(serving); err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	names, addresses := []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	if !serving.BindAddress.IsUnspecified() {
		addresses = append(addresses, serving.BindAddress)
	}
	pair := &serving.ServerCert.CertKey
	pair.CertFile = filepath.Join(directory, serving.ServerCert.PairName+".crt")
	pair.KeyFile = filepath.Join(directory, serving.ServerCert.PairName+".key")
	return ensureServingCertificate(pair.CertFile, pair.KeyFile, o.Generic.GenericServerRunOptions.AdvertiseAddress, names, addresses)
}
