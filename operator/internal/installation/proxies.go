package installation

import (
	"strconv"
	"strings"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// ProxyLabel has the name of a FrontProxy on its Secrets.
const ProxyLabel = "operator.kcp.io/front-proxy"

// ProxyWorkload returns the name of the StatefulSet and of the Service of a FrontProxy.
func ProxyWorkload(name string) string { return name + "-front-proxy" }

// ProxyBundle returns the name of the Secret with the CAs of the installation and of the server's certificate of a FrontProxy.
func ProxyBundle(name string) string { return ProxyWorkload(name) + "-merged-ca-bundle" }

// ProxyAddress returns the address of a FrontProxy for clients outside of the cluster: its own, or else the one of its RootShard.
func ProxyAddress(f *v1alpha1.FrontProxy, rs *v1alpha1.RootShard) (host string, port uint32) {
	if e := f.Spec.External; e != nil && e.Hostname != "" {
		return e.Hostname, e.Port
	}
	if name := f.Spec.ExternalHostname; name != "" {
		host, text, found := strings.Cut(name, ":")
		if port, err := strconv.ParseUint(text, 10, 16); found && err == nil {
			return host, uint32(port)
		}
		return host, workload.Port
	}
	return rs.Spec.External.Hostname, rs.Spec.External.Port
}
