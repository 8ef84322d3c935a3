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

// added is the number of headers for which EndToEnd leaves room: those that the proxy adds.
const added = 12

// EndToEnd returns the headers of a client's request that are for the backend: without those about the connection, those that the client
// lists as such, and those in which proxies describe their clients. The values are shared.
func EndToEnd(r *http.Request) http.Header {
	header := make(http.Header, len(r.Header)+added)
	maps.Copy(header, r.Header)
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
	values := [...]string{"", r.Host, "https"} // of which each header gets a part
	if address, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		values[0] = address
		header["X-Forwarded-For"] = values[0:1:1]
	}
	if r.TLS == nil {
		values[2] = "http"
	}
	header["X-Forwarded-Host"], header["X-Forwarded-Proto"] = values[1:2:2], values[2:3:3]
}
