package options

import (
	"github.com/spf13/pflag"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// MountProxy are the options for proxying requests to mounted workspaces.
type MountProxy struct {
	// Hosts are the hosts outside of the installation that mounts may use.
	Hosts []string
	// Files are the certificates for calls to Hosts.
	Files outbound.Files
}

func (m *MountProxy) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&m.Hosts, "mount-proxy-hosts", m.Hosts,
		"Hosts outside of this installation that mounted workspaces may use: host[:port] or *.domain[:port]. "+
			"The server proxies requests to these hosts with the tokens of the users.")
	m.Files.Flag = "mount-proxy"
	m.Files.AddFlags(
		fs,
		"Certificate authorities of these hosts, in addition to those of the system.",
		"Client certificate that this server presents to these hosts. It identifies this server, not the user of a request. "+
			"The hosts must not grant it any permissions.",
	)
}
