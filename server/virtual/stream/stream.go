// Package stream passes on requests for streams and upgraded connections. It imports nothing, for small programs.
package stream

import "net/http"

// headers are the headers of requests for streams and upgraded connections. None has the identity of the user, except for tokens
// among the protocols of websockets.
var headers = []string{"Accept", "Connection", "Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol",
	"X-Stream-Protocol-Version"}

// Header returns those headers of a request that a proxy passes on to serve a stream or an upgraded connection. All others are left
// out: they could contain the identity of the user.
func Header(of http.Header) http.Header {
	header := http.Header{}
	for _, name := range headers {
		if values := of[name]; len(values) > 0 {
			header[name] = values
		}
	}
	return header
}
