package options

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/kcplane/kcp/server/internal/shards/peers"
)

// Sharding are the options of a server that is one of the shards of an installation.
type Sharding struct {
	// RootKubeconfig has the URL of the root shard and its certificate authorities. The root shard itself has none.
	RootKubeconfig string
	// CacheKubeconfig has the URL of the cache server and its authorities. Without it, the root shard is the cache server.
	CacheKubeconfig string
	// ClientCert and ClientKey are the certificate of this shard as a peer.
	ClientCert, ClientKey string
	// PeerCA contains the authorities of the certificates of peers: other shards and front proxies.
	PeerCA string
	// ShardCA contains the authorities of the serving certificates of shards.
	ShardCA string
	// Placement is the rule by which workspaces without a selector get a shard: PlacementLocality or PlacementSpread.
	Placement string
	// MaxLogicalClusters is the number of logical clusters at which the shard is full. Zero means no limit.
	MaxLogicalClusters int64
	// Adopt makes a shard start with a store that its Shard object does not know.
	Adopt bool
	// InstallationID makes an empty store that of the root shard of an installation that exists. It is empty for a new installation.
	InstallationID string
}

// Rules of Sharding.Placement.
const (
	PlacementLocality = "locality"
	PlacementSpread   = "spread"
)

// Enabled reports whether the server is a shard of an installation with several shards.
func (s Sharding) Enabled() bool { return s.PeerCA != "" }

// IsRoot reports whether the server is the root shard.
func (s Sharding) IsRoot() bool { return s.RootKubeconfig == "" }

func (s *Sharding) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.PeerCA, "peer-client-ca-file", s.PeerCA, "Certificate authorities of the client certificates of other shards and "+
		"front proxies. A certificate names its shard or proxy in a URI such as kcp://shard/root. With this flag, the server is one shard of an "+
		"installation.")
	fs.StringVar(&s.ClientCert, "shard-client-cert-file", s.ClientCert,
		"Client certificate with which this shard calls other shards and the cache server. It contains the URI kcp://shard/<name>.")
	fs.StringVar(&s.ClientKey, "shard-client-key-file", s.ClientKey, "Private key of --shard-client-cert-file.")
	fs.StringVar(&s.ShardCA, "shard-ca-file", s.ShardCA, "Certificate authorities of the serving certificates of shards. Required on the "+
		"root shard. On other shards, defaults to those in --root-shard-kubeconfig-file.")
	fs.StringVar(&s.InstallationID, "installation-id", s.InstallationID, "ID of the installation whose root shard was lost. With it, a root "+
		"shard with an empty store takes the place of the lost one. A store that belongs to another installation is refused.")
	fs.StringVar(&s.RootKubeconfig, "root-shard-kubeconfig-file", s.RootKubeconfig,
		"Kubeconfig with the URL and the certificate authorities of the root shard. Required on every shard but the root shard.")
	fs.StringVar(&s.CacheKubeconfig, "cache-kubeconfig", s.CacheKubeconfig, "Kubeconfig with the URL and the certificate authorities of the "+
		"cache server, and optionally a client certificate in the place of --shard-client-cert-file. By default, the root shard serves the "+
		"cache.")
	fs.StringVar(&s.Placement, "workspace-placement", s.Placement, "Shards of new workspaces without a selector: locality (the shard of the "+
		"parent; children of root are distributed by load) or spread (a random shard).")
	fs.Int64Var(&s.MaxLogicalClusters, "shard-max-logical-clusters", s.MaxLogicalClusters, "Number of logical clusters at which this shard "+
		"gets no new workspaces of other shards. 0 means no limit.")
	fs.BoolVar(&s.Adopt, "adopt-shard", s.Adopt, "Start even if the Shard object in root belongs to another store. Use it once, after "+
		"the store of this shard was restored or replaced.")
}

func (s Sharding) validate(shardName string) error {
	if !s.Enabled() {
		for flag, value := range map[string]string{
			"root-shard-kubeconfig-file": s.RootKubeconfig, "cache-kubeconfig": s.CacheKubeconfig, "installation-id": s.InstallationID,
		} {
			if value != "" {
				return fmt.Errorf("--%s: requires --peer-client-ca-file, with which this shard and the others authenticate each other", flag)
			}
		}
		return nil
	}
	if s.ClientCert == "" || s.ClientKey == "" {
		return errors.New("--peer-client-ca-file: requires --shard-client-cert-file and --shard-client-key-file")
	}
	if s.Placement != PlacementLocality && s.Placement != PlacementSpread {
		return fmt.Errorf("--workspace-placement: must be %s or %s, got %q", PlacementLocality, PlacementSpread, s.Placement)
	}
	if !peers.ValidName(shardName) {
		return fmt.Errorf("--shard-name: must be 1 to 61 lower case letters, digits and '-', not at the ends, got %q", shardName)
	}
	if s.IsRoot() != (shardName == peers.Root) {
		return fmt.Errorf("--shard-name: the root shard is named %q, and only the others have --root-shard-kubeconfig-file; got %q", peers.Root,
			shardName)
	}
	if s.IsRoot() && s.ShardCA == "" {
		return errors.New("--shard-ca-file: required on the root shard, which calls the other shards")
	}
	if s.InstallationID != "" && !s.IsRoot() {
		return errors.New("--installation-id: only the root shard has it; other shards get the ID when they register")
	}
	if s.MaxLogicalClusters < 0 {
		return fmt.Errorf("--shard-max-logical-clusters: must not be negative, got %d", s.MaxLogicalClusters)
	}
	return s.checkCertificate(shardName)
}

// checkCertificate returns an error if the certificate of the shard is not the certificate of this shard.
func (s Sharding) checkCertificate(shardName string) error {
	text, err := os.ReadFile(s.ClientCert)
	if err != nil {
		return fmt.Errorf("--shard-client-cert-file: %w", err)
	}
	identity, err := peers.ParseIdentity(text)
	if err != nil {
		return fmt.Errorf("--shard-client-cert-file: %s: %w", s.ClientCert, err)
	}
	if want := (peers.Identity{Kind: peers.Shard, Name: shardName}); identity != want {
		return fmt.Errorf("--shard-client-cert-file: %s is the certificate of %s, want %s", s.ClientCert, identity, want)
	}
	return nil
}
