package options

import (
	"fmt"

	"github.com/spf13/pflag"
)

// VirtualStorage are the options of virtual storage whose objects are in virtual workspaces of providers' own.
type VirtualStorage struct {
	// Endpoints are the virtual workspaces that the exports of a workspace may lead to, as <workspace>=<URL>.
	Endpoints []string
	// CAFile holds certificate authorities of these, besides those of the system.
	CAFile string
	// ClientCertFile and ClientKeyFile prove to them that this server asks.
	ClientCertFile, ClientKeyFile string
}

func (v *VirtualStorage) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&v.Endpoints, "virtual-storage-endpoints", v.Endpoints, "A virtual workspace that endpoint slices of a workspace may lead to, and what is below its URL: "+
		"<path of the workspace>=https://<host>/services/<name>. Can be given more than once.")
	fs.StringVar(&v.CAFile, "virtual-storage-ca-file", v.CAFile, "Certificate authorities of these virtual workspaces, besides those of the system.")
	fs.StringVar(&v.ClientCertFile, "virtual-storage-client-cert-file", v.ClientCertFile, "Client certificate by which these virtual workspaces know this server. "+
		"It must be good for nothing else, and for nothing here.")
	fs.StringVar(&v.ClientKeyFile, "virtual-storage-client-key-file", v.ClientKeyFile, "Key of --virtual-storage-client-cert-file.")
}

func (v *VirtualStorage) validate() error {
	if (v.ClientCertFile == "") != (v.ClientKeyFile == "") {
		return fmt.Errorf("--virtual-storage-client-cert-file and --virtual-storage-client-key-file: give both or none")
	}
	return nil
}
