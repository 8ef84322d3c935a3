package outbound

import (
	"errors"
	"net/url"

	"k8s.io/apiserver/pkg/util/webhook"
)

// NoServices refuses webhooks of tenants behind a Service: a logical cluster has no Services, and those of the cluster in which the server
// may run do not belong to tenants.
type NoServices struct{}

var _ webhook.ServiceResolver = NoServices{}

var errNoServices = errors.New("a logical cluster has no Services: use clientConfig.url instead of clientConfig.service")

// ResolveEndpoint implements webhook.ServiceResolver.
func (NoServices) ResolveEndpoint(string, string, int32) (*url.URL, error) { return nil, errNoServices }
