// Package drain moves clients to other servers before their server stops. Clients keep connections open, and a stopping server responds
// to requests on them with 503 when it no longer accepts new requests.
package drain

import "net/http"

// WithClose asks clients to close their connections when stopping is closed, with "Connection: close" in HTTP/1.1 and GOAWAY in HTTP/2.
// Active requests and watches continue. The next request of the client opens a new connection. A load balancer sends it to another server
// when it has noticed that this server is not ready.
func WithClose(next http.Handler, stopping <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-stopping:
			w.Header().Set("Connection", "close") // net/http turns it into GOAWAY in HTTP/2
		default:
		}
		next.ServeHTTP(w, r)
	})
}
