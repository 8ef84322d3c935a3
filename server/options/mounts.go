package options

import (
	"fmt"

	"github.com/spf13/pflag"
)

// MountProxy are the options of how requests for mounted workspaces are passed on.
type MountProxy struct {
	// Hosts outside of the installation that mounts may lead to.
	Hosts []string
	// CAFile holds certificate authorities of these hosts, besides those of the system.
	CAFile string
	// ClientCertFile and ClientKeyFile prove to these hosts that requests come from this server.
	ClientCertFile, ClientKeyFile string
}

func (m *MountProxy) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&m.Hosts, "mount-proxy-hosts", m.Hosts, "Hosts outside of this installation that mounted workspaces may lead to: host[:port] or *.domain[:port]. "+
		"Requests are passed on to them with the tokens of the users.")
	fs.StringVar(&m.CAFile, "mount-proxy-ca-file", m.CAFile, "Certificate authorities of these hosts, besides those of the system.")
	fs.StringVar(&m.ClientCertFile, "mount-proxy-client-cert-file", m.ClientCertFile, "Client certificate that this server shows to these hosts. "+
		"It tells which server asks, not which user: it must stand for no rights there.")
	fs.StringVar(&m.ClientKeyFile, "mount-proxy-client-key-file", m.ClientKeyFile, "Key of --mount-proxy-client-cert-file.")
}

func (m *MountProxy) validate() error {
	if (m.ClientCertFile == "") != (m.ClientKeyFile == "") {
		return fmt.Errorf("--mount-proxy-client-cert-file and --mount-proxy-client-key-file: give both or none")
	}
	return nil
}
