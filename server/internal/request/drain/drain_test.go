package drain_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"

	"github.com/kcplane/kcp/server/internal/request/drain"
)

func TestClientsOpenNewConnectionsWhenTheServerStops(t *testing.T) {
	for _, major := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", major), func(t *testing.T) {
			stopping := make(chan struct{})
			server := httptest.NewUnstartedServer(drain.WithClose(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "answer")
			}), stopping))
			server.EnableHTTP2 = major == 2
			server.StartTLS()
			defer server.Close()
			ask := func() (reused bool) {
				t.Helper()
				trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
				request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := server.Client().Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				if body, err := io.ReadAll(response.Body); err != nil || string(body) != "answer" || response.ProtoMajor != major {
					t.Fatalf("%s: %q, %v", response.Proto, body, err)
				}
				return reused
			}
			ask()
			if !ask() {
				t.Error("a server that serves has its client open a second connection")
			}
			close(stopping)
			if !ask() {
				t.Error("the first request after the stop has begun is not answered on the connection that there is")
			}
			if ask() {
				t.Error("the next request is sent on the same connection")
			}
		})
	}
}
