package mount

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// upgraded sends a request through a mount to a server that agrees to upgrade its connection, and then repeats what it receives. It
// returns the answer, and the request that the server got, nil if there was none.
func upgraded(t *testing.T, header http.Header) (proxy *Proxy, response *http.Response, got *http.Request) {
	t.Helper()
	behind := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		connection, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer connection.Close()
		fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSet-Cookie: a=b\r\n\r\n", r.Header.Get("Upgrade"))
		for {
			line, err := buffer.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprintf(connection, "you said %s", line)
		}
	}))
	t.Cleanup(behind.Close)
	proxy = newProxy(t, behind)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serveAs(t, proxy, w, r, behind.URL) }))
	t.Cleanup(front.Close)
	r, err := http.NewRequest(http.MethodGet, front.URL+"/exec", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err = (&http.Client{Transport: &http.Transport{}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return proxy, response, got
}

// say sends a line, and reads one.
func say(t *testing.T, body io.ReadCloser, reader *bufio.Reader, line string) (string, error) {
	t.Helper()
	_, _ = fmt.Fprintln(body.(io.ReadWriteCloser), line) // whether it has come, the answer tells
	return reader.ReadString('\n')
}

func TestAConnectionCanBeUpgraded(t *testing.T) {
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		proxy, response, got := upgraded(t, http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {protocol}, "Authorization": {"Bearer mine"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"}, "Cookie": {"a=b"},
			"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "X-Forwarded-For": {"1.2.3.4"},
		})
		if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Set-Cookie") != "" {
			t.Fatalf("%s: got %d %v", protocol, response.StatusCode, response.Header)
		}
		if got.Header.Get("Authorization") != "Bearer mine" || got.Header.Get("Sec-Websocket-Protocol") != "v5.channel.k8s.io" || got.Header.Get(hopsHeader) != "1" {
			t.Errorf("%s: the server gets %v", protocol, got.Header)
		}
		for name := range got.Header {
			if strings.HasPrefix(name, "X-Remote-") || name == "Cookie" || name == "X-Forwarded-For" {
				t.Errorf("%s: the server gets the header %s", protocol, name)
			}
		}
		reader := bufio.NewReader(response.Body)
		if line, err := say(t, response.Body, reader, "hello"); line != "you said hello\n" {
			t.Errorf("%s: got %q, %v", protocol, line, err)
		}
		// It is over when the mount leads elsewhere.
		proxy.connections.open.End(mountKey)
		for line, err := say(t, response.Body, reader, "still there?"); err == nil; line, err = say(t, response.Body, reader, "and now?") {
			if line != "you said still there?\n" && line != "you said and now?\n" {
				t.Fatalf("%s: got %q", protocol, line)
			}
		}
	}
}

// Otherwise a client could go on with requests of its own making.
func TestConnectionsAreUpgradedOnlyToProtocolsOfKubernetes(t *testing.T) {
	for _, protocol := range []string{"h2c", "HTTP/2.0", "TLS/1.0", "websocket, h2c", ""} {
		_, response, got := upgraded(t, http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {protocol}, "Http2-Settings": {"AAMAAABkAARAAAAAAAIAAAAA"}})
		if got != nil || response.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: got %d, and the server %v", protocol, response.StatusCode, got)
		}
	}
}

func TestAnUpgradePassesNoMoreMountsThanOtherRequests(t *testing.T) {
	for _, hops := range []string{"4", "-1", "many"} {
		_, response, got := upgraded(t, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, hopsHeader: {hops}})
		if got != nil || response.StatusCode != http.StatusInternalServerError {
			t.Errorf("%s: got %d, and the server %v", hops, response.StatusCode, got)
		}
	}
}
