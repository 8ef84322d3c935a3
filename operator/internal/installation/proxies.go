package installation

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
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

// CheckAddress returns an error if an older FrontProxy of the namespace has the same address, also one of another installation.
func CheckAddress(ctx context.Context, c client.Reader, f *v1alpha1.FrontProxy, rs *v1alpha1.RootShard) error {
	proxies, roots := &v1alpha1.FrontProxyList{}, &v1alpha1.RootShardList{}
	for _, list := range []client.ObjectList{proxies, roots} {
		if err := c.List(ctx, list, client.InNamespace(f.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	host, port := ProxyAddress(f, rs)
	for i := range proxies.Items {
		other := &proxies.Items[i]
		of := slices.IndexFunc(roots.Items, func(rs v1alpha1.RootShard) bool { return Refers(other.Spec.RootShard, &rs) })
		if of < 0 || !older(other, f) {
			continue
		}
		if otherHost, otherPort := ProxyAddress(other, &roots.Items[of]); strings.EqualFold(otherHost, host) && otherPort == port {
			return conditions.Unwatched(recheck, conditions.Stall("HostnameInUse",
				"spec.external: FrontProxy %s of RootShard %s has the address %s:%d: set another one", other.Name, roots.Items[of].Name, host, port))
		}
	}
	return nil
}

// older reports whether an object is older than another one.
func older(a, b metav1.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(bt.Time), cmp.Compare(a.GetName(), b.GetName())) < 0
}
