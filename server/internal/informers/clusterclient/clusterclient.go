// Package clusterclient makes client-go clients that reach every logical cluster. The context of each call has the cluster, as everywhere
// in the server, and the transport adds the /clusters/ segment to the URL.
package clusterclient

import (
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// ForContext returns a copy of base, whose host must be the bare server, for clients that address the logical cluster
// (or the wildcard) in the context of each call. A call without one fails with logicalcluster.ErrMissing.
func ForContext(base *rest.Config) *rest.Config {
	cfg := rest.CopyConfig(base)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return clusterTransport{next} })
	return cfg
}

// ForCluster returns a copy of base for clients of the one cluster c, for code that passes no cluster in its contexts.
func ForCluster(base *rest.Config, c logicalcluster.Cluster) *rest.Config {
	cfg := rest.CopyConfig(base)
	cfg.Host += "/clusters/" + c.String()
	return cfg
}

type clusterTransport struct{ next http.RoundTripper }

func (t clusterTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := logicalcluster.From(req.Context())
	if !ok {
		return nil, logicalcluster.ErrMissing
	}
	scoped := *req
	u := url.URL(*req.URL)
	prefix := "/clusters/" + c.String()
	if u.RawPath != "" {
		u.RawPath = prefix + u.RawPath
	}
	u.Path = prefix + u.Path
	scoped.URL = &u
	return t.next.RoundTrip(&scoped)
}
