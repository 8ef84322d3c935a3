package feed

import (
	"context"
	"net/http"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

// Membership says in the requests to the cache server to which installation this shard belongs, and notices a cache server of another one.
type Membership struct {
	// Installation returns the ID of the installation of this shard; empty if it is not known yet.
	Installation func(context.Context) string

	other atomic.Pointer[string]
}

// Other returns the installation of the cache server that responded last, if it is not that of this shard.
func (m *Membership) Other() string {
	if other := m.other.Load(); other != nil {
		return *other
	}
	return ""
}

// Wrap returns a transport for requests to the cache server.
func (m *Membership) Wrap(next http.RoundTripper) http.RoundTripper { return member{next, m} }

type member struct {
	next http.RoundTripper
	*Membership
}

// RoundTrip implements http.RoundTripper.
func (m member) RoundTrip(r *http.Request) (*http.Response, error) {
	own := m.Installation(r.Context())
	if own != "" {
		r = r.Clone(r.Context())
		r.Header.Set(cacheserver.InstallationHeader, own)
	}
	response, err := m.next.RoundTrip(r)
	if err != nil || own == "" {
		return response, err
	}
	other := response.Header.Get(cacheserver.InstallationHeader)
	if other == own {
		other = ""
	}
	if last := m.other.Swap(&other); other != "" && (last == nil || *last != other) {
		klog.FromContext(r.Context()).Error(nil, "The cache server belongs to another installation: correct --cache-kubeconfig",
			decisionlog.Identity, own, decisionlog.Reason, "the installation of the cache server is "+other)
	}
	return response, nil
}
