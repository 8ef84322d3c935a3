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

// Transport returns a transport that calls by config.
func Transport(config *tls.Config) *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSClientConfig: config,
		TLSHandshakeTimeout: handshakeTimeout, IdleConnTimeout: idleTimeout, ForceAttemptHTTP2: true, DisableCompression: true,
	}
}

// maxLocation is how many bytes a URL may have that others have written: the server keeps it, in every object that leads there.
const maxLocation = 2048

// Location reads a URL that others have written, and what is asked for goes below: it has no part that could make a request for
// one object a request for another.
func Location(text string) (*url.URL, error) {
	if len(text) > maxLocation {
		return nil, fmt.Errorf("it has %d bytes, the limit is %d", len(text), maxLocation)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is no URL")
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
