package outbound

import (
	"errors"
	"net/url"

	"k8s.io/apiserver/pkg/util/webhook"
)

// NoServices tells that webhooks of tenants cannot be behind a Service: a logical cluster has none, and those of the cluster that
// the server may run in are not theirs.
type NoServices struct{}

var _ webhook.ServiceResolver = NoServices{}

var errNoServices = errors.New("a logical cluster has no Services: use clientConfig.url instead of clientConfig.service")

// ResolveEndpoint implements webhook.ServiceResolver.
func (NoServices) ResolveEndpoint(string, string, int32) (*url.URL, error) { return nil, errNoServices }
