package workspaces

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewManager returns a manager for all workspaces of a virtual workspace. url is one of the URLs in the status of an
// APIExportEndpointSlice or a WorkspaceType. Certificates and credentials are those of config.
func NewManager(config *rest.Config, url string, options ctrl.Options) (ctrl.Manager, error) {
	config = rest.CopyConfig(config)
	config.Host = strings.TrimSuffix(url, "/") + everyCluster
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return toCluster{next: next} })
	options.MapperProvider = newMapper
	options.NewCache = newCache
	options.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
		strict := *options.HTTPClient
		strict.Transport = toCluster{next: strict.Transport, strict: true}
		options.HTTPClient = &strict
		return client.New(config, options)
	}
	return ctrl.NewManager(config, options)
}

const everyCluster = "/clusters/" + all

// toCluster sends each request to the logical cluster in its context. Requests without one come from informers and discovery, and go to
// all clusters; a strict client refuses them, because they are mistakes.
type toCluster struct {
	next   http.RoundTripper
	strict bool
}

// RoundTrip implements http.RoundTripper.
func (t toCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	before, after, found := strings.Cut(r.URL.Path, everyCluster+"/")
	if !found || (r.Context().Value(contextKey{}) == all && r.Method == http.MethodGet) {
		return t.next.RoundTrip(r)
	}
	cluster, err := Of(r.Context())
	if err != nil {
		if t.strict {
			return nil, fmt.Errorf("%s %s: %w", r.Method, after, err)
		}
		return t.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = before+"/clusters/"+cluster+"/"+after, ""
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper implements net.RoundTripperWrapper, through which client-go finds the transport below.
func (t toCluster) WrappedRoundTripper() http.RoundTripper { return t.next }
