package options

import (
	"github.com/spf13/pflag"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// VirtualStorage are the options of virtual storage whose objects are in virtual workspaces that providers run.
type VirtualStorage struct {
	// Endpoints are the virtual workspaces that the exports of a workspace may use, as <workspace>=<URL>.
	Endpoints []string
	// Files are the certificates for calls to Endpoints.
	Files outbound.Files
}

func (v *VirtualStorage) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&v.Endpoints, "virtual-storage-endpoints", v.Endpoints,
		"URL prefix that endpoint slices of a workspace may use for virtual workspaces, as "+
			"<path of the workspace>=https://<host>/services/<name>. Can be given more than once.")
	v.Files.Flag = "virtual-storage"
	v.Files.AddFlags(fs, "Certificate authorities of these virtual workspaces, in addition to those of the system.",
		"Client certificate that this server presents to these virtual workspaces. Use it for nothing else, and grant it no permissions "+
			"in this installation.")
}
