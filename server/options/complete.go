package options

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	controlplaneoptions "k8s.io/kubernetes/pkg/controlplane/apiserver/options"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// Completed are options with all defaults resolved.
type Completed struct {
	*Options
	Generic controlplaneoptions.CompletedOptions
	// Embedded reports whether the server runs the embedded etcd.
	Embedded bool
	// Batteries are the optional objects that the installation starts with.
	Batteries sets.Set[string]
	// RootCA are the certificates with which service accounts verify the server, in PEM. If it is empty, they use its serving certificate.
	RootCA []byte
}

// minStaleness is the minimum of MaxStaleness: the server reads the revision of etcd ten times in this period.
const minStaleness = 2 * time.Second

// validate returns an error if an option is invalid, independent of the other options.
func (o *Options) validate() error {
	if err := o.LeaderElection.validate(); err != nil {
		return err
	}
	if err := o.Sharding.validate(o.ShardName); err != nil {
		return err
	}
	if err := o.validateProxies(); err != nil {
		return err
	}
	if err := o.MountProxy.Files.Validate(); err != nil {
		return err
	}
	if err := o.VirtualStorage.Files.Validate(); err != nil {
		return err
	}
	if s := o.Authorization.MaxStaleness; s != 0 && s < minStaleness {
		return fmt.Errorf("--authorization-max-staleness: must be 0, or %[2]s or more, got %[1]s", s, minStaleness)
	}
	if o.TotalObjectLimit < 0 {
		return fmt.Errorf("--logical-cluster-total-object-limit: must not be negative, got %d", o.TotalObjectLimit)
	}
	if o.MaxRequests < 0 || o.MaxWatches < 0 || o.MaxAllWatches < 0 {
		return fmt.Errorf("--logical-cluster-max-requests-inflight, --logical-cluster-max-watches, --max-watches: must not be negative, "+
			"got %d, %d and %d", o.MaxRequests, o.MaxWatches, o.MaxAllWatches)
	}
	if o.MaxLargeObjects < 0 {
		return fmt.Errorf("--max-large-object-bytes: must not be negative, got %d", o.MaxLargeObjects)
	}
	if _, err := outbound.NewNetworks(o.TenantWebhookNetworks); err != nil {
		return err
	}
	if o.StalledClientTimeout < time.Second {
		return fmt.Errorf("--stalled-client-timeout: must be 1s or more, got %s", o.StalledClientTimeout)
	}
	if !o.RunVirtualWorkspaces && o.ShardVirtualWorkspaceURL == "" {
		return errors.New("--run-virtual-workspaces: false requires --shard-virtual-workspace-url, the URL of kcp virtual-workspaces")
	}
	if o.OnlyVirtualWorkspaces && len(o.Generic.Etcd.StorageConfig.Transport.ServerList) == 0 {
		return errors.New("--etcd-servers: required, because kcp virtual-workspaces reads the etcd of a shard")
	}
	if o.ObjectCountInterval <= 0 {
		return fmt.Errorf("--logical-cluster-object-count-scan-interval: must be a positive duration, got %s", o.ObjectCountInterval)
	}
	return nil
}

// Complete resolves options that depend on others, and creates the root directory and the signing key.
func (o *Options) Complete(ctx context.Context) (Completed, error) {
	included, err := parseBatteries(o.BatteriesIncluded)
	if err == nil {
		err = o.validate()
	}
	if err != nil {
		return Completed{}, err
	}
	if err := o.completePaths(); err != nil {
		return Completed{}, err
	}
	g := o.Generic
	if err := o.completeKeys(o.RootDirectory); err != nil {
		return Completed{}, err
	}
	rootCA, err := o.readRootCA()
	if err != nil {
		return Completed{}, err
	}
	embedded := len(g.Etcd.StorageConfig.Transport.ServerList) == 0
	if embedded {
		// Upstream's validation requires a server. The storage backend has its own client and does not use this list.
		g.Etcd.StorageConfig.Transport.ServerList = []string{"embedded"}
	}
	if bind := g.SecureServing.BindAddress; g.GenericServerRunOptions.ExternalHost == "" && (bind.IsUnspecified() || bind.IsLoopback()) {
		g.GenericServerRunOptions.ExternalHost = "localhost"
	}
	if g.SecureServing.ServerCert.CertDirectory == "" {
		g.SecureServing.ServerCert.CertDirectory = o.RootDirectory
	}
	if err := o.completeAdvertisedAddress(); err != nil {
		return Completed{}, err
	}
	if err := completeServingCertificate(g.SecureServing.SecureServingOptions, g.GenericServerRunOptions.AdvertiseAddress); err != nil {
		return Completed{}, fmt.Errorf("creating the serving certificate: %w", err)
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

// completePaths makes paths absolute, and creates the root directory.
func (o *Options) completePaths() error {
	root, err := filepath.Abs(o.RootDirectory)
	if err != nil {
		return err
	}
	o.RootDirectory = root
	if err := os.MkdirAll(root, 0o700); err != nil {
		return fmt.Errorf("--root-directory: %w", err)
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
	return nil
}

// completeAdvertisedAddress sets the address that the certificate of the server names, if the server creates it.
func (o *Options) completeAdvertisedAddress() error {
	serving := o.Generic.SecureServing.SecureServingOptions
	if pair := serving.ServerCert.CertKey; pair.CertFile != "" || pair.KeyFile != "" {
		return nil
	}
	return o.Generic.GenericServerRunOptions.DefaultAdvertiseAddress(serving)
}

// completeServingCertificate creates a certificate in the directory of a server at an address, unless its options name a certificate.
func completeServingCertificate(serving *genericoptions.SecureServingOptions, address net.IP) error {
	pair := &serving.ServerCert.CertKey
	if pair.CertFile != "" || pair.KeyFile != "" {
		return nil
	}
	directory := serving.ServerCert.CertDirectory
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	names, addresses := []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	if !serving.BindAddress.IsUnspecified() {
		addresses = append(addresses, serving.BindAddress)
	}
	pair.CertFile = filepath.Join(directory, serving.ServerCert.PairName+".crt")
	pair.KeyFile = filepath.Join(directory, serving.ServerCert.PairName+".key")
	return ensureServingCertificate(pair.CertFile, pair.KeyFile, address, names, addresses)
}
