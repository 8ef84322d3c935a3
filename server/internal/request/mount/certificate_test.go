package mount

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// The certificate would be taken for the user where certificates authenticate users: in this installation for one.
func TestTheClientCertificateIsPresentedToOtherHostsOnly(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, len(r.TLS.PeerCertificates))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	private, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: server.Certificate().Raw}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for shown, hosts := range map[string][2][]string{"0": {{server.URL}, nil}, "1": {nil, {server.Listener.Addr().String()}}} {
		known, err := NewHosts(hosts[0], hosts[1])
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := NewProxy(Config{Hosts: known, Workspaces: workspaces(), Files: outbound.Files{CA: certificate, ClientCert: certificate, ClientKey: key}, Serializer: legacyscheme.Codecs})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		serve(t, proxy, w, server.URL+"/clusters/root", "/api", http.Header{})
		if w.Code != http.StatusOK || w.Body.String() != shown {
			t.Errorf("%s certificates were shown, and the answer was %d; want %s", w.Body, w.Code, shown)
		}
	}
	for _, bad := range []outbound.Files{{CA: key}, {CA: filepath.Join(dir, "absent")}, {ClientCert: certificate}, {ClientCert: key, ClientKey: certificate}} {
		if _, err := NewProxy(Config{Workspaces: workspaces(), Files: bad}); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// The front proxies of an installation have certificates of its authorities, which other mounted servers must not use.
func TestTheAuthoritiesOfTheInstallationAreTrustedForItOnly(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer server.Close()
	authorities := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, c := range map[string]struct {
		own, others []string
		want        int
	}{
		"a front proxy": {[]string{server.URL}, nil, http.StatusNoContent},
		"another host":  {nil, []string{server.Listener.Addr().String()}, http.StatusServiceUnavailable},
	} {
		hosts, err := NewHosts(c.own, c.others)
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := NewProxy(Config{Hosts: hosts, Workspaces: workspaces(), Authorities: authorities, Serializer: legacyscheme.Codecs})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		if serve(t, proxy, w, server.URL+"/clusters/root", "/api", http.Header{}); w.Code != c.want {
			t.Errorf("%s: got %d %s, want %d", name, w.Code, w.Body, c.want)
		}
	}
}
