package outbound

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/streaming/pkg/httpstream"
)

// upgrades are the protocols to which Kubernetes upgrades connections. With others, such as another version of HTTP, a client could send
// requests whose headers are not filtered, on a connection that was opened with the certificate of this server.
var upgrades = []string{"websocket", "spdy/3.1"}

// Upgrade reports whether a request upgrades its connection. It returns an error if Kubernetes does not use the protocol.
func Upgrade(r *http.Request) (bool, error) {
	if !httpstream.IsUpgradeRequest(r) {
		return false, nil
	}
	if protocol := r.Header.Get("Upgrade"); !slices.Contains(upgrades, strings.ToLower(protocol)) {
		return true, fmt.Errorf("connections can be upgraded to %s, not to %q", strings.Join(upgrades, " and "), protocol)
	}
	return true, nil
}

// ForUpgrades returns a transport like t for requests that upgrade their connection, which HTTP/2 cannot.
func ForUpgrades(t *http.Transport) *http.Transport {
	t = t.Clone() // which adds HTTP/2 to the protocols of its TLS configuration
	t.ForceAttemptHTTP2, t.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	return t
}
