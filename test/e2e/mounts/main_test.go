// Package mounts proves what workspaces are that are mounted: served by the server that an object names, never by this one.
package mounts

import (
	"encoding/pem"
	"fmt"
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
	// elsewhere is a server of somebody else that mounts may lead to; last is the last request that it got below
	// remembered.
	elsewhere *httptest.Server
	last      atomic.Pointer[http.Request]
)

const remembered = "/remembered"

func TestMain(m *testing.M) {
	elsewhere = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, remembered) {
			last.Store(r)
		}
		fmt.Fprintf(w, `{"kind":"Elsewhere"}`)
	}))
	dir, err := os.MkdirTemp("", "kcp-e2e-")
	if err != nil {
		panic(err)
	}
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: elsewhere.Certificate().Raw}), 0o600); err != nil {
		panic(err)
	}
	kcptest.Main(m, &server, "--mount-proxy-hosts="+strings.TrimPrefix(elsewhere.URL, "https://"), "--mount-proxy-ca-file="+ca)
}
