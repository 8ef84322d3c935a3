package options

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
)

func TestAShardDoesNotStartWithInvalidOptions(t *testing.T) {
	authority := peerstest.NewAuthority(t)
	certificate := filepath.Join(t.TempDir(), "west.crt")
	west := authority.ClientConfig(t, authority.Peer(t, peers.Shard, "west")).CertData
	if err := os.WriteFile(certificate, west, 0o600); err != nil {
		t.Fatal(err)
	}
	valid := Sharding{
		PeerCA: authority.File, ClientCert: certificate, ClientKey: "west.key", ShardCA: authority.File, RootKubeconfig: "root.kubeconfig",
		Placement: PlacementLocality,
	}
	for name, c := range map[string]struct {
		shard  string
		change func(*Sharding)
		want   string
	}{
		"valid options":                   {"west", func(*Sharding) {}, ""},
		"a name with an upper case":       {"West", func(*Sharding) {}, "--shard-name: must be 1 to 61 lower case letters"},
		"a name with a slash":             {"we/st", func(*Sharding) {}, "--shard-name: must be 1 to 61 lower case letters"},
		"a name that is too long":         {strings.Repeat("w", 62), func(*Sharding) {}, "--shard-name: must be 1 to 61 lower case letters"},
		"no name":                         {"", func(*Sharding) {}, "--shard-name: must be 1 to 61 lower case letters"},
		"the name of the root shard":      {"root", func(*Sharding) {}, "only the others have --root-shard-kubeconfig-file"},
		"the certificate of another":      {"east", func(*Sharding) {}, "is the certificate of kcp://shard/west, want kcp://shard/east"},
		"no certificate":                  {"west", func(s *Sharding) { s.ClientCert = "" }, "requires --shard-client-cert-file"},
		"an unknown placement":            {"west", func(s *Sharding) { s.Placement = "near" }, "--workspace-placement: must be locality or spread"},
		"a negative limit":                {"west", func(s *Sharding) { s.MaxLogicalClusters = -1 }, "--shard-max-logical-clusters: must not be negative"},
		"an installation on no root":      {"west", func(s *Sharding) { s.InstallationID = "id" }, "--installation-id: only the root shard has it"},
		"the root shard without peers":    {"west", func(s *Sharding) { s.PeerCA = "" }, "requires --peer-client-ca-file"},
		"a certificate that is not there": {"west", func(s *Sharding) { s.ClientCert = "absent.crt" }, "--shard-client-cert-file: open absent.crt"},
	} {
		s := valid
		c.change(&s)
		err := s.validate(c.shard)
		if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
