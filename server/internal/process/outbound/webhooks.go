package outbound

import (
	"net/http"

	"go.opentelemetry.io/otel/trace"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Webhooks returns a wrapper that makes upstream's webhook clients call within limits and without credentials. Upstream would present the
// credentials of the server to kubernetes.default.svc, which it takes for itself.
func (c *Calls) Webhooks(limits Limits, traces trace.TracerProvider) webhook.AuthenticationInfoResolverWrapper {
	wrap := webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, &rest.Config{}, traces)
	within := func(config *rest.Config, err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		config = rest.CopyConfig(config)
		// This replaces upstream's transport, and uses only its TLS configuration. The process does not cache a configuration with a proxy
		// function.
		config.Proxy, config.DisableCompression = http.ProxyFromEnvironment, true
		config.WrapTransport = transport.Wrappers(func(upstream http.RoundTripper) http.RoundTripper {
			tlsConfig, err := utilnet.TLSClientConfig(upstream)
			if err != nil {
				return roundTripper(func(*http.Request) (*http.Response, error) { return nil, err })
			}
			return c.RoundTripper(tlsConfig, limits)
		}, config.WrapTransport)
		return config, nil
	}
	return func(next webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		next = wrap(next)
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) { return within(next.ClientConfigFor(hostPort)) },
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				return within(next.ClientConfigForService(name, namespace, port))
			},
		}
	}
}
