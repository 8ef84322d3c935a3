package tunnel

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Subresources are those of pods for which requests pass a tunnel.
var Subresources = sets.New("log", "exec", "attach", "portforward")

// passed are the headers of requests that pass a tunnel. None has an identity.
var passed = []string{"Accept", "Connection", "Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol",
	"X-Stream-Protocol-Version"}

// Header returns those headers of a request that pass a tunnel.
func Header(of http.Header) http.Header {
	header := http.Header{}
	for _, name := range passed {
		if values := of[name]; len(values) > 0 {
			header[name] = values
		}
	}
	return header
}
