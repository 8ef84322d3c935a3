// Package drain moves clients to other servers before their server stops. Clients keep connections open; a server that stops answers
// requests on them with 503 once it no longer accepts new requests.
package drain

import "net/http"

// WithClose asks clients to close their connections once stopping is closed, by "Connection: close" in HTTP/1.1 and GOAWAY in HTTP/2.
// Requests and watches that are under way go on. The next request of the client opens a new connection, which a load balancer sends to
// another server as soon as it has seen that this one is not ready.
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
