package outbound

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	certutil "k8s.io/client-go/util/cert"
)

func TestAClientCertificateIsReloaded(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, r.TLS.PeerCertificates[0].DNSNames)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	files := Files{ClientCert: filepath.Join(dir, "tls.crt"), ClientKey: filepath.Join(dir, "tls.key")}
	write := func(file string, content []byte) {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	issue := func(name string) {
		t.Helper()
		certificate, key, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		write(files.ClientCert, certificate)
		write(files.ClientKey, key)
	}
	issue("first")
	config, err := files.TLS()
	if err != nil {
		t.Fatal(err)
	}
	config.RootCAs.AddCert(server.Certificate())
	client := &http.Client{Transport: Transport(config)}
	shows := func(when, want string) {
		t.Helper()
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		defer response.Body.Close()
		if got, err := io.ReadAll(response.Body); err != nil || string(got) != "["+want+"]" {
			t.Errorf("%s the certificate of %s is presented (%v), want that of %s", when, got, err, want)
		}
	}
	shows("at first", "first")
	write(files.ClientKey, []byte("broken"))
	shows("with a broken key", "first")
	issue("second")
	shows("after the renewal", "second")
}
