package endpoints

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Limits of the time for which the server waits for a virtual workspace, and of the bytes that it reads.
const (
	headerTimeout   = time.Minute // and of a whole response that is not a watch
	mostHeaderBytes = 64 << 10
	mostBytes       = 32 << 20 // of a response that is not a watch
)

var (
	errRedirect = errors.New("the server responded with a redirect, which is not followed")
	limits      = outbound.Limits{Bytes: mostBytes, Time: headerTimeout}
	watchLimits = outbound.Limits{Stream: true}
)

func newTransport(config *tls.Config) http.RoundTripper {
	t := outbound.Transport(config)
	t.ResponseHeaderTimeout, t.MaxResponseHeaderBytes = headerTimeout, mostHeaderBytes
	return fairqueue.RoundTripper(t)
}

// leading sends requests to the logical cluster of their context in a virtual workspace.
type leading struct {
	path string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (l leading) RoundTrip(r *http.Request) (*http.Response, error) {
	cluster, err := logicalcluster.NameFrom(r.Context())
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.URL.Path, out.URL.RawPath = l.path+"/clusters/"+string(cluster)+r.URL.Path, ""
	out.Header = http.Header{"Accept": r.Header["Accept"], "Content-Type": r.Header["Content-Type"], "User-Agent": {"kcp"},
		customresources.HopsHeader: {strconv.Itoa(customresources.Hops(r.Context()) + 1)}}
	if r.URL.Query().Get("watch") != "" {
		return watchLimits.RoundTripper(l.next).RoundTrip(out)
	}
	return limits.RoundTripper(l.next).RoundTrip(out)
}
