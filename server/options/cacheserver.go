package options

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/kcplane/kcp/server/internal/storage/etcd"
)

// CacheServer are the options of kcp cache-server.
type CacheServer struct {
	Serving *genericoptions.SecureServingOptions
	Etcd    *genericoptions.EtcdOptions
	// EmbeddedEtcd is used unless Etcd names servers.
	EmbeddedEtcd etcd.Config
	Logs         *logsapi.LoggingConfiguration

	// RootDirectory contains every file that the server creates.
	RootDirectory string
	// PeerCA contains the authorities of the certificates of shards.
	PeerCA string
	// ClientCA contains the authorities of the certificates of administrators.
	ClientCA string
	// MetricsCA contains the authorities of the certificates of the user that may read the metrics.
	MetricsCA string
	// AdministratorsWrite lets administrators write.
	AdministratorsWrite bool
	// StalledClientTimeout is the time after which the server ends a request whose client makes no progress.
	StalledClientTimeout time.Duration
	// ProfilerAddress is the address (host:port) that serves pprof without authentication. If it is empty, pprof is not served.
	ProfilerAddress string
}

// cachePrefix is the default prefix of the keys in etcd.
const cachePrefix = "/cache"

// cacheEtcdFlags are the flags of etcd that have a meaning without encryption, leases and watch cache.
var cacheEtcdFlags = sets.New("etcd-servers", "etcd-prefix", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-compaction-interval")

// NewCacheServer returns the default options.
func NewCacheServer() *CacheServer {
	serving := genericoptions.NewSecureServingOptions()
	serving.BindPort, serving.ServerCert.PairName, serving.ServerCert.CertDirectory = 6443, "cache-server", ""
	stored := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(cachePrefix, nil))
	return &CacheServer{Serving: serving, Etcd: stored, Logs: logsapi.NewLoggingConfiguration(), RootDirectory: ".kcp-cache",
		StalledClientTimeout: 30 * time.Second}
}

// AddFlags registers every flag, by group.
func (o *CacheServer) AddFlags(flags *flag.NamedFlagSets) {
	fs := flags.FlagSet("cache server")
	fs.StringVar(&o.RootDirectory, "root-directory", o.RootDirectory,
		"Directory for all files that the server creates. If it is empty, the working directory.")
	fs.StringVar(&o.PeerCA, "peer-client-ca-file", o.PeerCA, "Certificate authorities of the client certificates of shards. A certificate "+
		"names its shard in a URI such as kcp://shard/root. A shard writes its own objects, and reads those of all shards.")
	fs.StringVar(&o.ClientCA, "client-ca-file", o.ClientCA, "Certificate authorities of the client certificates of administrators. Members "+
		"of system:masters may read.")
	fs.StringVar(&o.MetricsCA, "metrics-client-ca-file", o.MetricsCA, "Certificate authorities of the client certificate of the user "+
		"metrics-viewer, who may read /metrics and nothing else. Administrators may read it, too.")
	fs.BoolVar(&o.AdministratorsWrite, "allow-administrator-writes", o.AdministratorsWrite, "Let members of system:masters write the objects "+
		"of every shard. Shards of other versions of kcp require this: each of them can then write the objects of all others.")
	fs.DurationVar(&o.StalledClientTimeout, "stalled-client-timeout", o.StalledClientTimeout, "Time after which the server ends a request "+
		"whose client makes no progress: it reads less than 256 KiB of the response, or sends less than 16 KiB of the body. Watches without "+
		"events are not affected.")
	fs.StringVar(&o.ProfilerAddress, "profiler-address", o.ProfilerAddress,
		"Address (host:port) that serves pprof profiles without authentication. By default, profiles are not served.")
	all := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	o.Etcd.AddFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		if cacheEtcdFlags.Has(f.Name) {
			flags.FlagSet("etcd").AddFlag(f)
		}
	})
	addEmbeddedEtcdFlags(flags.FlagSet("embedded etcd"), &o.EmbeddedEtcd)
	o.Serving.AddFlags(flags.FlagSet("secure serving"))
	flags.FlagSet("secure serving").Lookup("cert-dir").Usage = usages["cert-dir"]
	logsapi.AddFlags(o.Logs, flags.FlagSet("logs"))
}

// CompletedCacheServer are options with all defaults resolved.
type CompletedCacheServer struct {
	*CacheServer
	// Embedded reports whether the server runs the embedded etcd.
	Embedded bool
}

func (o *CacheServer) validate() error {
	errs := append(o.Serving.Validate(), o.Etcd.Validate()...)
	if o.PeerCA == "" && !o.AdministratorsWrite {
		errs = append(errs, errors.New("--peer-client-ca-file: required, because no shard could write without it; shards that write with the "+
			"certificate of an administrator need --client-ca-file and --allow-administrator-writes"))
	}
	if o.AdministratorsWrite && o.ClientCA == "" {
		errs = append(errs, errors.New("--allow-administrator-writes: requires --client-ca-file"))
	}
	if o.StalledClientTimeout < time.Second {
		errs = append(errs, fmt.Errorf("--stalled-client-timeout: must be 1s or more, got %s", o.StalledClientTimeout))
	}
	return errors.Join(errs...)
}

// Complete resolves options that depend on others, and creates the root directory and the serving certificate.
func (o *CacheServer) Complete() (CompletedCacheServer, error) {
	root, err := filepath.Abs(o.RootDirectory)
	if err != nil {
		return CompletedCacheServer{}, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return CompletedCacheServer{}, fmt.Errorf("--root-directory: %w", err)
	}
	embedded := len(o.Etcd.StorageConfig.Transport.ServerList) == 0
	if embedded {
		o.Etcd.StorageConfig.Transport.ServerList = []string{"embedded"} // upstream's validation requires a server
	}
	if err := o.validate(); err != nil {
		return CompletedCacheServer{}, err
	}
	if o.EmbeddedEtcd.Directory == "" {
		o.EmbeddedEtcd.Directory = filepath.Join(root, "etcd-server")
	}
	if o.Serving.ServerCert.CertDirectory == "" {
		o.Serving.ServerCert.CertDirectory = root
	}
	address, err := o.Serving.DefaultExternalAddress()
	if err != nil {
		address = net.IPv4(127, 0, 0, 1)
	}
	if err := completeServingCertificate(o.Serving, address); err != nil {
		return CompletedCacheServer{}, fmt.Errorf("creating the serving certificate: %w", err)
	}
	return CompletedCacheServer{CacheServer: o, Embedded: embedded}, nil
}
