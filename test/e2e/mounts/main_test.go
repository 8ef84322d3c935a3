// Package mounts tests mounted workspaces, whose requests the server forwards to the server in the status of an object.
package mounts

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var (
	server *kcptest.Server
	// elsewhere is another server, to which mounts may refer. last is the last request that it received below remembered.
	elsewhere *httptest.Server
	last      atomic.Pointer[http.Request]
)

const remembered = "/remembered"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	elsewhere = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, remembered) {
			last.Store(r)
		}
		if r.Header.Get("Upgrade") != "" {
			echo(w, r)
			return
		}
		fmt.Fprint(w, `{"kind":"Elsewhere"}`)
	}))
	defer elsewhere.Close()
	dir, err := os.MkdirTemp("", "kcp-e2e-")
	if err == nil {
		defer os.RemoveAll(dir)
		server, err = start(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return server.Run(m)
}

// echo upgrades a connection, and sends back what it receives.
func echo(w http.ResponseWriter, r *http.Request) {
	connection, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer connection.Close()
	fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	_, _ = io.Copy(connection, buffer)
}

// start starts a server that trusts the certificate of elsewhere.
func start(dir string) (*kcptest.Server, error) {
	ca := filepath.Join(dir, "elsewhere.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: elsewhere.Certificate().Raw}), 0o600); err != nil {
		return nil, err
	}
	return kcptest.Start(dir, "--mount-proxy-hosts="+elsewhere.Listener.Addr().String(), "--mount-proxy-ca-file="+ca)
}
