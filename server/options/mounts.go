package options

import (
	"github.com/spf13/pflag"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// MountProxy are the options of how requests for mounted workspaces are passed on.
type MountProxy struct {
	// Hosts outside of the installation that mounts may lead to.
	Hosts []string
	// Files are for calling these.
	Files outbound.Files
}

func (m *MountProxy) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&m.Hosts, "mount-proxy-hosts", m.Hosts,
		"Hosts outside of this installation that mounted workspaces may lead to: host[:port] or *.domain[:port]. "+
			"Requests are passed on to them with the tokens of the users.")
	m.Files.Flag = "mount-proxy"
	m.Files.AddFlags(
		fs,
		"Certificate authorities of these hosts, besides those of the system.",
		"Client certificate that this server shows to these hosts. It tells which server asks, not which user: it must stand for no rights there.",
	)
}
