package outbound

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Timeouts of connections.
const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
)

// Transport returns a transport with a TLS configuration.
func Transport(config *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSClientConfig: config,
		TLSHandshakeTimeout: handshakeTimeout, IdleConnTimeout: idleTimeout, ForceAttemptHTTP2: true, DisableCompression: true,
	}
}

// maxLocation is the maximum length, in bytes, of a URL from a tenant: the server keeps the URL in every object that refers to it.
const maxLocation = 2048

// Location parses a URL from a tenant. The server requests paths below it. The URL has no part that could turn a request for one object
// into a request for another.
func Location(text string) (*url.URL, error) {
	if len(text) > maxLocation {
		return nil, fmt.Errorf("it has %d bytes; at most %d are allowed", len(text), maxLocation)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL")
	case u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("it does not begin with https:// and a host")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("it has more than a host and a path")
	case strings.Contains(u.EscapedPath(), "%") || strings.Contains(u.Path, "//") || strings.Contains(u.Path+"/", "/../") ||
		strings.Contains(u.Path+"/", "/./"):
		return nil, errors.New("its path contains an escape, an empty or a relative segment")
	}
	return u, nil
}
