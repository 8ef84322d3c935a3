package options

import (
	"github.com/spf13/pflag"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// VirtualStorage are the options of virtual storage whose objects are in virtual workspaces of providers' own.
type VirtualStorage struct {
	// Endpoints are the virtual workspaces that the exports of a workspace may lead to, as <workspace>=<URL>.
	Endpoints []string
	// Files are for calling these.
	Files outbound.Files
}

func (v *VirtualStorage) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&v.Endpoints, "virtual-storage-endpoints", v.Endpoints,
		"A virtual workspace that endpoint slices of a workspace may lead to, and what is below its URL: "+
			"<path of the workspace>=https://<host>/services/<name>. Can be given more than once.")
	v.Files.Flag = "virtual-storage"
	v.Files.AddFlags(fs, "Certificate authorities of these virtual workspaces, besides those of the system.",
		"Client certificate by which these virtual workspaces know this server. It must be good for nothing else, and for nothing here.")
}
