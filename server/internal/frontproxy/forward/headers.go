package forward

import (
	"maps"
	"net"
	"net/http"
	"strings"
)

// connectionHeaders are about one connection, and not for the server behind it (RFC 9110, section 7.6.1).
var connectionHeaders = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// EndToEnd returns the headers of a client's request that are for the backend: without those about the connection, those that the client
// lists as such, and those in which proxies describe their clients. The values are shared.
func EndToEnd(r *http.Request) http.Header {
	header := maps.Clone(r.Header)
	withoutConnection(header)
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		delete(header, name)
	}
	for _, value := range r.Header["Te"] {
		if strings.EqualFold(strings.TrimSpace(value), "trailers") {
			header["Te"] = []string{"trailers"}
		}
	}
	if _, sent := header["User-Agent"]; !sent {
		header["User-Agent"] = nil // otherwise net/http says that this is a Go client
	}
	return header
}

func withoutConnection(header http.Header) {
	for _, listed := range header["Connection"] {
		for name := range strings.SplitSeq(listed, ",") {
			header.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range connectionHeaders {
		delete(header, name)
	}
}

// SetForwarded adds the address of the client, and the host and the scheme of its request.
func SetForwarded(header http.Header, r *http.Request) {
	if address, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		header["X-Forwarded-For"] = []string{address}
	}
	scheme := "https"
	if r.TLS == nil {
		scheme = "http"
	}
	header["X-Forwarded-Host"], header["X-Forwarded-Proto"] = []string{r.Host}, []string{scheme}
}
