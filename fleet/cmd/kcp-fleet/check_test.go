package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

func TestCheckReportsWhyAControllerIsNotReady(t *testing.T) {
	ready := true
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ready || r.URL.Path != "/readyz" {
			http.Error(w, "[-]informers failed", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	served := write("served.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	content, _, err := cert.GenerateSelfSignedCertKey("fleet.example.com", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, empty := write("other.crt", content), write("empty.crt", nil)
	closed := httptest.NewServer(nil)
	closed.Close()
	for name, test := range map[string]struct {
		check
		ready bool
		want  string
	}{
		"ready":                      {check{server.URL, served, time.Now}, true, ""},
		"not ready":                  {check{server.URL, served, time.Now}, false, "500 Internal Server Error [-]informers failed"},
		"another certificate":        {check{server.URL, other, time.Now}, true, "it serves another certificate than the one in its Secret"},
		"no certificate":             {check{server.URL, empty, time.Now}, true, "create a Secret with a serving certificate"},
		"no file":                    {check{server.URL, filepath.Join(dir, "none"), time.Now}, true, "no such file"},
		"an expired certificate":     {check{server.URL, served, func() time.Time { return server.Certificate().NotAfter.Add(1) }}, true, "expired"},
		"nothing listens at the URL": {check{strings.Replace(closed.URL, "http:", "https:", 1), served, time.Now}, true, "does not respond"},
	} {
		ready = test.ready
		if err := test.run(t.Context()); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}
