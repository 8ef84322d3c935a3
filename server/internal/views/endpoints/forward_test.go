package endpoints

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const logPath = "/apis/example.org/v1/namespaces/default/books/one/log"

// forwarding returns a server that forwards all requests of a consumer to a virtual workspace.
func forwarding(t *testing.T, workspace http.HandlerFunc) *httptest.Server {
	t.Helper()
	provider := httptest.NewUnstartedServer(workspace)
	provider.EnableHTTP2 = true
	provider.StartTLS()
	t.Cleanup(provider.Close)
	e := newEndpoints(t, provider, provider.URL+"/services/books")
	at, err := url.Parse(provider.URL + "/services/books")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := request.WithUser(logicalcluster.WithName(r.Context(), "consumer"), &user.DefaultInfo{Name: "jane"})
		e.Forward(w, r.WithContext(ctx), at, logPath)
	}))
	t.Cleanup(server.Close)
	return server
}

func send(t *testing.T, to string, header http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := (&http.Client{Transport: &http.Transport{}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

func TestAForwardedRequestHasNoIdentityOfTheUser(t *testing.T) {
	seen := make(chan *http.Request, 1)
	server := forwarding(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Clone(context.Background())
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Warning", "299 - x")
		fmt.Fprint(w, "a line")
	})
	response := send(t, server.URL+"/anything?follow=true", http.Header{
		"Authorization": {"Bearer mine"}, "Cookie": {"a=b"}, "X-Remote-User": {"admin"}, "Impersonate-User": {"admin"}, "X-Forwarded-For": {"1.2.3.4"},
		protocolsHeader: {tokenProtocol + "bWluZQ, v5.channel.k8s.io"},
	})
	content, err := io.ReadAll(response.Body)
	if err != nil || string(content) != "a line" || response.Header.Get("Set-Cookie") != "" || response.Header.Get("Warning") != "" {
		t.Errorf("the client gets %q with %v: %v", content, response.Header, err)
	}
	got := <-seen
	if got.URL.Path != "/services/books/clusters/consumer"+logPath || got.URL.RawQuery != "follow=true" {
		t.Errorf("the URL is %s", got.URL)
	}
	if got.Header.Get(protocolsHeader) != "v5.channel.k8s.io" {
		t.Errorf("the protocols are %v", got.Header[protocolsHeader])
	}
	for name := range got.Header {
		if !slices.Contains([]string{"Accept", "Accept-Encoding", "User-Agent", customresources.HopsHeader, protocolsHeader}, name) {
			t.Errorf("the header %s is sent", name)
		}
	}
}

func TestAForwardedConnectionIsUpgraded(t *testing.T) {
	for _, protocol := range []string{"websocket", "SPDY/3.1"} {
		server := forwarding(t, func(w http.ResponseWriter, r *http.Request) {
			connection, buffer, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer connection.Close()
			fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Other: a\r\n\r\n", r.Header.Get("Upgrade"))
			line, _ := buffer.ReadString('\n')
			fmt.Fprintf(connection, "you said %s", line)
		})
		response := send(t, server.URL, http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}})
		if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("X-Other") != "" {
			t.Fatalf("%s: got %d with %v", protocol, response.StatusCode, response.Header)
		}
		fmt.Fprintln(response.Body.(io.Writer), "hello")
		if line, err := bufio.NewReader(response.Body).ReadString('\n'); line != "you said hello\n" {
			t.Errorf("%s: got %q: %v", protocol, line, err)
		}
	}
	server := forwarding(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was forwarded") })
	if response := send(t, server.URL, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}); response.StatusCode != http.StatusBadRequest {
		t.Errorf("another protocol: got %d", response.StatusCode)
	}
}

func TestConsumersGetOnlyKnownResponsesOfForwardedRequests(t *testing.T) {
	for code, want := range map[int]int{
		http.StatusOK: http.StatusOK, http.StatusBadRequest: http.StatusBadRequest, http.StatusNotFound: http.StatusNotFound,
		http.StatusTemporaryRedirect: http.StatusServiceUnavailable, http.StatusUnauthorized: http.StatusServiceUnavailable,
		http.StatusForbidden: http.StatusServiceUnavailable, http.StatusInternalServerError: http.StatusServiceUnavailable,
	} {
		server := forwarding(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://elsewhere.example.org")
			w.WriteHeader(code)
			fmt.Fprint(w, strings.Repeat("x", 10*mostErrorBytes))
		})
		response := send(t, server.URL, http.Header{})
		content, err := io.ReadAll(response.Body)
		if response.StatusCode != want || err != nil || (code != http.StatusOK && len(content) > mostErrorBytes) || response.Header.Get("Location") != "" {
			t.Errorf("%d becomes %d with %d bytes: %v", code, response.StatusCode, len(content), err)
		}
	}
	server := forwarding(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"message":"the cluster is away"}`)
	})
	response := send(t, server.URL, http.Header{})
	content, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusServiceUnavailable || string(content) != `{"message":"the cluster is away"}` {
		t.Errorf("an explained error becomes %d %s: %v", response.StatusCode, content, err)
	}
}

func TestAForwardedStreamEndsWithItsRequest(t *testing.T) {
	ended := make(chan struct{})
	server := forwarding(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "a line")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	response := send(t, server.URL, http.Header{})
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); line != "a line\n" {
		t.Fatalf("got %q: %v", line, err)
	}
	response.Body.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the request to the virtual workspace goes on")
	}
}
