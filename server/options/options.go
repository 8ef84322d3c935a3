// Package options turns command line flags into the configuration of a server: the flags of kcp, and upstream's groups of flags without
// those that would override the design of the server.
package options

import (
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
	// Generic are the options of upstream.
	Generic *controlplaneoptions.Options
	// EmbeddedEtcd is used unless Generic.Etcd names servers.
	EmbeddedEtcd etcd.Config
	// Authorization chooses and configures the steps of authorization.
	Authorization Authorization

	// RootDirectory contains every file that the server creates.
	RootDirectory string
	// KubeconfigPath and AdminTokenPath are relative to RootDirectory unless absolute.
	KubeconfigPath, AdminTokenPath string
	// ShardName is the name of this server among the servers that share a tree of workspaces.
	ShardName string
	// ShardBaseURL is the URL of this server for other shards and the front proxy, ShardExternalURL the URL for users.
	ShardBaseURL, ShardExternalURL string
	// ShardVirtualWorkspaceURL is the URL of the virtual workspaces of this server for users.
	ShardVirtualWorkspaceURL string
	// ProfilerAddress is the address (host:port) that serves pprof without authentication. If it is empty, pprof is not served.
	ProfilerAddress string
	// Homes are the workspaces that users get by requesting them.
	Homes Homes
	// MountProxy configures where the server proxies requests for mounted workspaces.
	MountProxy MountProxy
	// VirtualStorage configures which URLs endpoint slices of providers may use.
	VirtualStorage VirtualStorage
	// TenantWebhookNetworks are the networks in which the server calls webhooks and issuers of tenants, for outbound.NewNetworks.
	TenantWebhookNetworks []string
	// TotalObjectLimit is the maximum number of objects in a logical cluster without its own limit. Zero means no limit.
	TotalObjectLimit int64
	// MaxRequests and MaxWatches are the maximum numbers of open requests and watches of a logical cluster. Zero means no limit.
	MaxRequests, MaxWatches int
	// MaxAllWatches is the maximum number of open watches of all tenants. Zero means no limit.
	MaxAllWatches int
	// RequestMemory is the maximum memory, in bytes, of the bodies and responses of all requests of tenants. Zero means no limit.
	RequestMemory int64
	// MaxLargeObjects is the maximum memory, in bytes, of large objects of all tenants that the server keeps. Zero means no limit.
	MaxLargeObjects int64
	// StalledClientTimeout is the time after which the server ends a request whose client makes no progress.
	StalledClientTimeout time.Duration
	// ObjectCountInterval is the maximum age of the object count of a logical cluster.
	ObjectCountInterval time.Duration
	// RunControllers makes this process run the controllers.
	RunControllers bool
	// RunVirtualWorkspaces makes this process serve the virtual workspaces of kcp.
	RunVirtualWorkspaces bool
	// OnlyVirtualWorkspaces makes this process serve virtual workspaces and nothing else. Another process with the same etcd is the shard.
	OnlyVirtualWorkspaces bool
	// RootCAFile contains the certificates with which service accounts verify the server. If it is empty, they use its serving certificate.
	RootCAFile string
	// SecretTokenKeyFile contains the key that signs the tokens in Secrets.
	SecretTokenKeyFile string
	// LeaderElection makes this process run the controllers only while it is the leader.
	LeaderElection LeaderElection
	// Sharding makes this server one shard of an installation.
	Sharding Sharding
	// BatteriesIncluded is the list for Completed.Batteries: names, or +name and -name to change the defaults.
	BatteriesIncluded []string
}

// Homes are the options of home workspaces.
type Homes struct {
	Enabled bool
	// CreatorGroups are the groups whose members get a home.
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
	// MaxStaleness is the maximum time that roles, bindings and workspaces in memory may be behind etcd. Zero means no limit.
	MaxStaleness time.Duration
}

// withheld are flags of upstream that would change what a logical cluster is, or that have no meaning in this server.
var withheld = sets.New(
	"enable-priority-and-fairness",
	"watch-cache", "watch-cache-sizes", "default-watch-cache-size", "storage-backend", "storage-media-type",
	"delete-collection-workers", "etcd-count-metric-poll-period", "etcd-servers-overrides", "lease-reuse-duration-seconds",
	"service-account-signing-endpoint",
)

// usages are the help texts of upstream's flags that have another meaning in this server.
var usages = map[string]string{
	"max-requests-inflight": "Maximum number of non-mutating requests of all tenants in flight. A tenant may have as many requests in " +
		"flight as are free: a single tenant gets at most half of the maximum, two tenants a third each, and so on. Watches and requests " +
		"of administrators are not counted. 0 means no limit.",
	"max-mutating-requests-inflight": "Maximum number of mutating requests of all tenants in flight, shared like --max-requests-inflight. " +
		"0 means no limit.",
	"requestheader-allowed-names": "Common names in the client certificates of the front proxies that may state the identities of users in " +
		"headers. If empty, all certificates of --requestheader-client-ca-file may; with --peer-client-ca-file, names are required.",
	"cert-dir": "Directory of the serving certificate that the server creates. Defaults to the root directory. Ignored if --tls-cert-file " +
		"and --tls-private-key-file are set.",
}

// watchGrace is the time that a stopping server takes to end its watches, at 200 per second or more. Without it, one watch delays the stop
// by a minute.
const watchGrace = 5 * time.Second

// New returns the default options.
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
	// Upstream's token cache authenticates without the context of the request, and therefore without its logical cluster.
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
		RunControllers: true, RunVirtualWorkspaces: true, ObjectCountInterval: time.Minute, StalledClientTimeout: 30 * time.Second,
		Sharding:       Sharding{Placement: PlacementLocality},
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

// NewVirtualWorkspaces returns the defaults of a process that serves the virtual workspaces of a shard, and nothing else.
func NewVirtualWorkspaces() *Options {
	o := New()
	o.OnlyVirtualWorkspaces, o.RunControllers = true, false
	return o
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
	o.addUnused(sets.FlagSet("kcp without effect"))
	misc := sets.FlagSet("misc")
	misc.DurationVar(&g.EventTTL, "event-ttl", g.EventTTL, "Time to retain events.")
	misc.StringVar(&g.ServiceAccountSigningKeyFile, "service-account-signing-key-file", g.ServiceAccountSigningKeyFile,
		"File with the private key that signs service account tokens. Defaults to --service-account-private-key-file, or to sa.key in the "+
			"root directory.")
}

func (o *Options) addKCPFlags(sets *flag.NamedFlagSets) {
	fs := sets.FlagSet("kcp")
	fs.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory, "Directory for all files that the server creates.")
	fs.StringVar(&o.ShardName, "shard-name", o.ShardName, "Name of this shard. The root shard is always named root.")
	fs.StringVar(&o.ShardBaseURL, "shard-base-url", o.ShardBaseURL, "URL of this shard for other shards and front proxies.")
	fs.StringVar(&o.ShardVirtualWorkspaceURL, "shard-virtual-workspace-url", o.ShardVirtualWorkspaceURL,
		"URL of the virtual workspaces of this shard for users. Defaults to --shard-base-url.")
	fs.BoolVar(&o.RunVirtualWorkspaces, "run-virtual-workspaces", o.RunVirtualWorkspaces, "Serve the virtual workspaces of this shard in "+
		"this process. If false, kcp virtual-workspaces must serve them at --shard-virtual-workspace-url.")
	fs.StringVar(&o.ShardExternalURL, "shard-external-url", o.ShardExternalURL,
		"URL of the installation for users, which is that of the front proxies. Defaults to --shard-base-url.")
	fs.StringVar(&o.ProfilerAddress, "profiler-address", o.ProfilerAddress,
		"Address (host:port) that serves pprof profiles without authentication. By default, profiles are not served.")
	outbound.AddNetworksFlag(fs, &o.TenantWebhookNetworks)
	o.addLimitFlags(fs)
	fs.DurationVar(&o.ObjectCountInterval, "logical-cluster-object-count-scan-interval", o.ObjectCountInterval,
		"Age at which the server recounts the stored objects of a logical cluster that receives writes.")
	fs.StringSliceVar(&o.BatteriesIncluded, "batteries-included", o.BatteriesIncluded,
		"Optional objects that the installation starts with: a list of "+strings.Join(batteries, ", ")+
			"; or +name and -name to add to the default and remove from it.")

	fs = sets.FlagSet("kcp authentication")
	fs.StringVar(&o.KubeconfigPath, "kubeconfig-path", o.KubeconfigPath,
		"File for the kubeconfig of the administrators, relative to the root directory.")
	fs.StringVar(&o.AdminTokenPath, "authentication-admin-token-path", o.AdminTokenPath,
		"File for the hash of the shard administrator's token, relative to the root directory.")

	o.Authorization.addFlags(sets.FlagSet("kcp authorization"))

	fs = sets.FlagSet("kcp home workspaces")
	fs.BoolVar(&o.Homes.Enabled, "enable-home-workspaces", o.Homes.Enabled,
		"Create a home workspace for a user on request, as kubectl ws ~ does.")
	fs.StringSliceVar(&o.Homes.CreatorGroups, "home-workspaces-home-creator-groups", o.Homes.CreatorGroups,
		"Groups whose members get a home workspace.")

	o.Sharding.addFlags(sets.FlagSet("kcp shards"))
	o.MountProxy.addFlags(sets.FlagSet("kcp mounts"))
	o.VirtualStorage.addFlags(sets.FlagSet("kcp virtual storage"))

	fs = sets.FlagSet("kcp controllers")
	fs.BoolVar(&o.RunControllers, "run-controllers", o.RunControllers, "Run the controllers in this process.")
	fs.StringVar(&o.RootCAFile, "root-ca-file", o.RootCAFile, "Certificate authorities with which clients verify this server, "+
		"for the ConfigMaps kube-root-ca.crt and the Secrets of service accounts. Defaults to its serving certificate.")
	fs.StringVar(&o.SecretTokenKeyFile, "service-account-private-key-file", o.SecretTokenKeyFile,
		"File with the private key that signs the tokens in Secrets, and other service account tokens unless "+
			"--service-account-signing-key-file is set. Defaults to --service-account-signing-key-file.")
	o.LeaderElection.addFlags(fs)

	addEmbeddedEtcdFlags(sets.FlagSet("embedded etcd"), &o.EmbeddedEtcd)
}

// addLimitFlags registers the limits of what tenants may use of the server.
func (o *Options) addLimitFlags(fs *pflag.FlagSet) {
	fs.Int64Var(&o.TotalObjectLimit, "logical-cluster-total-object-limit", o.TotalObjectLimit, "Maximum number of objects in a "+
		"logical cluster. The annotation core.kcp.io/max-total-objects of a logical cluster overrides it. 0 means no limit.")
	fs.IntVar(&o.MaxRequests, "logical-cluster-max-requests-inflight", o.MaxRequests,
		"Maximum number of requests in flight, without watches, for each logical cluster; in root, for each user. 0 means no limit.")
	fs.IntVar(&o.MaxWatches, "logical-cluster-max-watches", o.MaxWatches,
		"Maximum number of open watches for each logical cluster; in root, for each user. 0 means no limit.")
	fs.IntVar(&o.MaxAllWatches, "max-watches", o.MaxAllWatches, "Maximum number of open watches of all tenants. A watch takes about 90 KiB "+
		"of memory. A quarter of the free watches is reserved for tenants with few watches. Of the rest, a tenant gets at most half, the next "+
		"tenant half of what remains, and so on. 0 means no limit.")
	fs.Int64Var(&o.RequestMemory, "max-request-memory-bytes", o.RequestMemory, "Maximum estimated memory, in bytes, of the bodies and "+
		"responses of requests in flight. Of the free memory, a tenant gets at most half, other tenants half of the rest. 0 means no limit.")
	fs.Int64Var(&o.MaxLargeObjects, "max-large-object-bytes", o.MaxLargeObjects, "Maximum estimated memory, in bytes, of large "+
		"definitions, roles, bindings, webhooks and policies of all tenants. Tenants cannot store more; administrators can. Of the free memory, "+
		"a tenant gets at most half, other tenants half of the rest. 0 means no limit.")
	fs.DurationVar(&o.StalledClientTimeout, "stalled-client-timeout", o.StalledClientTimeout, "Time after which the server ends a request "+
		"whose client makes no progress: it reads less than 256 KiB of the response, or sends less than 16 KiB of the body. Watches without "+
		"events are not affected.")
}

func (a *Authorization) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&a.AlwaysAllowPaths, "authorization-always-allow-paths", a.AlwaysAllowPaths,
		"Paths of the server that all users may read, including anonymous users.")
	fs.StringSliceVar(&a.Order, "authorization-order", a.Order,
		"Order of the authorizers: AlwaysAllowGroups, AlwaysAllowPaths, RBAC, Webhook.")
	fs.StringVar(&a.WebhookConfigFile, "authorization-webhook-config-file", a.WebhookConfigFile,
		"Kubeconfig of a webhook that authorizes requests on which the previous authorizers have no opinion.")
	fs.StringVar(&a.WebhookVersion, "authorization-webhook-version", a.WebhookVersion,
		"API version of the SubjectAccessReviews that the server sends to the webhook.")
	fs.DurationVar(&a.WebhookAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", a.WebhookAuthorizedTTL,
		"Time to cache an approval of the webhook.")
	fs.DurationVar(&a.WebhookUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", a.WebhookUnauthorizedTTL,
		"Time to cache a refusal of the webhook.")
	fs.DurationVar(&a.MaxStaleness, "authorization-max-staleness", a.MaxStaleness, "Maximum time that roles, bindings and workspaces in "+
		"memory may be behind etcd. When etcd is unreachable for longer, the server refuses requests with 503. 0 means no limit.")
}

func addEmbeddedEtcdFlags(fs *pflag.FlagSet, e *etcd.Config) {
	fs.StringVar(&e.Directory, "embedded-etcd-directory", e.Directory,
		"Directory of the embedded etcd. Defaults to etcd-server in the root directory.")
	fs.IntVar(&e.ClientPort, "embedded-etcd-client-port", e.ClientPort,
		"Loopback TCP port, without encryption, for clients of the embedded etcd. 0 means no port: only the server can connect.")
	fs.IntVar(&e.PeerPort, "embedded-etcd-peer-port", e.PeerPort,
		"Loopback TCP port, without encryption, for peers of the embedded etcd. 0 means no port.")
	fs.Int64Var(&e.WALSizeBytes, "embedded-etcd-wal-size-bytes", e.WALSizeBytes,
		"Preallocated size of a segment of the write-ahead log. 0 means etcd's default.")
	fs.Int64Var(&e.QuotaBackendBytes, "embedded-etcd-quota-backend-bytes", e.QuotaBackendBytes,
		"Size of the embedded etcd at which the server refuses writes that would make it larger. 0 means 64 GiB.")
}
