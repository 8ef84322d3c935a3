package frontproxy

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/version"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/kcplane/kcp/server/internal/frontproxy/identity"
)

// Options of kcp front-proxy. The names of the flags are those of upstream's kcp-front-proxy.
type Options struct {
	Serving        *genericoptions.SecureServingOptions
	Authentication *kubeoptions.BuiltInAuthenticationOptions
	Audit          *genericoptions.AuditOptions
	Logs           *logs.Options
	// Version is the response of /version. No flag sets it.
	Version *version.Info

	// MappingFile says which backend serves which paths. Without it, the shards serve everything.
	MappingFile string
	// RootDirectory contains every file that the proxy creates.
	RootDirectory string
	// RootKubeconfig has the URL of the root shard, and ShardsKubeconfig the certificate with which the proxy calls shards as a peer.
	RootKubeconfig, ShardsKubeconfig string
	// Shards are the URLs of shards by name, for the first start.
	Shards map[string]string
	// ProfilerAddress serves pprof without authentication; empty for not at all.
	ProfilerAddress string
	// CORSAllowedOrigins are regular expressions.
	CORSAllowedOrigins []string
	// DropGroups and PassOnGroups are for identity.NewFilter.
	DropGroups, PassOnGroups []string
	// MaxOpenRequests and MaxOpenRequestsPerClient limit open requests, watches included. Zero means no limit.
	MaxOpenRequests, MaxOpenRequestsPerClient int
	// StalledClientTimeout is the time after which a request ends whose client makes no progress.
	StalledClientTimeout time.Duration
	// ShutdownDelay is how long the proxy serves after it reports that it is not ready.
	ShutdownDelay time.Duration
}

// NewOptions returns the default options.
func NewOptions() *Options {
	o := &Options{
		Serving: genericoptions.NewSecureServingOptions(),
		Authentication: kubeoptions.NewBuiltInAuthenticationOptions().
			WithClientCert().WithOIDC().WithRequestHeader().WithServiceAccounts().WithTokenFile().WithWebHook(),
		Audit: genericoptions.NewAuditOptions(), Logs: logs.NewOptions(), Version: &version.Info{},
		RootDirectory: ".kcp", DropGroups: identity.DefaultDropped,
		MaxOpenRequests: 50_000, MaxOpenRequestsPerClient: 5_000, StalledClientTimeout: 30 * time.Second, ShutdownDelay: 5 * time.Second,
	}
	o.Serving.BindPort = 443
	o.Serving.ServerCert.PairName, o.Serving.ServerCert.CertDirectory = "front-proxy", ""
	return o
}

// AddFlags registers every flag, by group.
func (o *Options) AddFlags(sets *cliflag.NamedFlagSets) {
	fs := sets.FlagSet("front proxy")
	fs.StringVar(&o.MappingFile, "mapping-file", o.MappingFile, "YAML file that says which backend serves which paths. The file, and the "+
		"certificates that it names, are read again when they change. Without it, the shards serve everything.")
	fs.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory, "Directory of the files that the front proxy creates: the shards that "+
		"it knew last, and a serving certificate. If it is empty, the front proxy creates no file.")
	fs.StringVar(&o.RootKubeconfig, "root-kubeconfig", o.RootKubeconfig, "Kubeconfig with the URL of the root shard, and with the "+
		"certificate authorities of the serving certificates of all shards.")
	fs.StringVar(&o.ShardsKubeconfig, "shards-kubeconfig", o.ShardsKubeconfig, "Kubeconfig with the client certificate for all shards, which "+
		"contains the URI kcp://proxy/<name>, and with their certificate authorities. Defaults to --root-kubeconfig. Its URL is used only "+
		"without --root-kubeconfig.")
	fs.StringToStringVar(&o.Shards, "shards", o.Shards, "URLs of shards, as name=https://host:port, until the root shard or the root "+
		"directory has them.")
	fs.StringVar(&o.ProfilerAddress, "profiler-address", o.ProfilerAddress,
		"Address (host:port) that serves pprof profiles without authentication. By default, profiles are not served.")
	fs.StringSliceVar(&o.CORSAllowedOrigins, "cors-allowed-origins", o.CORSAllowedOrigins, "Regular expressions for the origins of web pages "+
		"that may send requests.")
	fs.IntVar(&o.MaxOpenRequests, "max-open-requests", o.MaxOpenRequests,
		"Maximum number of open requests, watches included. 0 means no limit.")
	fs.IntVar(&o.MaxOpenRequestsPerClient, "max-open-requests-per-client", o.MaxOpenRequestsPerClient,
		"Maximum number of open requests of one user, watches included. Clients that only a shard can authenticate are counted by their "+
			"network. 0 means no limit.")
	fs.DurationVar(&o.StalledClientTimeout, "stalled-client-timeout", o.StalledClientTimeout,
		"Time after which the front proxy ends a request whose client makes no progress: it reads less than 256 KiB of the response, or sends "+
			"less than 16 KiB of the body. Watches without "+
			"events are not affected.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay, "Time for which the front proxy serves requests after "+
		"/readyz has begun to fail.")
	serving := sets.FlagSet("secure serving")
	o.Serving.AddFlags(serving)
	serving.Lookup("cert-dir").Usage = "Directory of the serving certificate that the front proxy creates. Defaults to the root directory. " +
		"Ignored if --tls-cert-file and --tls-private-key-file are set."
	fs = sets.FlagSet("authentication")
	all := pflag.NewFlagSet("authentication", pflag.ContinueOnError)
	o.Authentication.AddFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		if _, ours := shardFlags[f.Name]; ours {
			f.Usage = "Accepted, and not used: the shard that holds a logical cluster verifies tokens of service accounts, because it knows " +
				"whether the account exists."
		}
		if f.Name == "requestheader-allowed-names" {
			f.Usage = "Common names in the client certificates that may state the identities of users in headers. Required with " +
				"--requestheader-client-ca-file."
		}
		fs.AddFlag(f)
	})
	fs.StringSliceVar(&o.DropGroups, "authentication-drop-groups", o.DropGroups, "Groups that no user has behind the front proxy. An entry "+
		"with * at its end is a prefix.")
	fs.StringSliceVar(&o.PassOnGroups, "authentication-pass-on-groups", o.PassOnGroups, "The only groups that users have behind the front "+
		"proxy, except for --authentication-drop-groups. An entry with * at its end is a prefix. Empty for all groups.")
	o.Audit.AddFlags(sets.FlagSet("auditing"))
	logsapi.AddFlags(o.Logs, sets.FlagSet("logs"))
	utilfeature.DefaultMutableFeatureGate.AddFlag(sets.FlagSet("features"))
}

// shardFlags are flags of upstream about tokens of service accounts, which shards verify.
var shardFlags = map[string]bool{
	"service-account-key-file": true, "service-account-lookup": true, "service-account-issuer": true, "service-account-jwks-uri": true,
	"service-account-max-token-expiration": true, "service-account-extend-token-expiration": true, "service-account-signing-endpoint": true,
	"api-audiences": false,
}

// complete sets what no flag sets, creates the root directory, and returns an error if an option is invalid.
func (o *Options) complete() error {
	o.Authentication.ServiceAccounts = nil // see shardFlags
	errs := slices.Concat(o.Serving.Validate(), o.Authentication.Validate(), o.Audit.Validate())
	if o.Audit.PolicyFile == "" && (o.Audit.LogOptions.Path != "" || o.Audit.WebhookOptions.ConfigFile != "") {
		errs = append(errs, errors.New("--audit-policy-file is required with --audit-log-path and --audit-webhook-config-file: it selects the "+
			"events to record"))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{{"max-open-requests", int64(o.MaxOpenRequests)}, {"max-open-requests-per-client", int64(o.MaxOpenRequestsPerClient)},
		{"shutdown-delay-duration", int64(o.ShutdownDelay)}, {"stalled-client-timeout", int64(o.StalledClientTimeout) - 1}} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("--%s is too small", f.name))
		}
	}
	if o.Authentication.RequestHeader.ClientCAFile != "" && len(o.Authentication.RequestHeader.AllowedNames) == 0 {
		errs = append(errs, fmt.Errorf("--requestheader-allowed-names is required with --requestheader-client-ca-file: any holder of a "+
			"certificate of the authority could be any user otherwise"))
	}
	if len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	o.Shards = maps.Clone(o.Shards)
	if o.RootDirectory == "" {
		return nil
	}
	var err error
	if o.RootDirectory, err = filepath.Abs(o.RootDirectory); err != nil {
		return err
	}
	if o.Serving.ServerCert.CertDirectory == "" {
		o.Serving.ServerCert.CertDirectory = o.RootDirectory
	}
	return os.MkdirAll(o.RootDirectory, 0o700)
}
