package outbound

import (
	"net/http"

	"go.opentelemetry.io/otel/trace"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Webhooks returns what makes upstream's clients of webhooks call within limits, and without any credentials: upstream would show
// kubernetes.default.svc, which it takes for itself, those of the server.
func (c *Calls) Webhooks(limits Limits, traces trace.TracerProvider) webhook.AuthenticationInfoResolverWrapper {
	wrap := webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, &rest.Config{}, traces)
	within := func(config *rest.Config, err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		config = rest.CopyConfig(config)
		// Upstream's transport is replaced, and only its TLS configuration is used. A configuration with a proxy function is not kept in
		// the cache of the process.
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
