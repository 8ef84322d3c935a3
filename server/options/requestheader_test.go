package options

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"
)

// authorityFile writes the certificate of a new authority.
func authorityFile(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		t.Fatal(err)
	}
	content, err := cert.EncodeCertificates(certificate)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestShardsAcceptIdentityHeadersFromNamedProxiesAlone(t *testing.T) {
	clients, proxies := authorityFile(t, "clients"), authorityFile(t, "proxies")
	for name, c := range map[string]struct {
		authority string
		allowed   []string
		want      string
	}{
		"no headers":                        {"", nil, ""},
		"named proxies of an own authority": {proxies, []string{"proxy-1"}, ""},
		"every certificate":                 {proxies, nil, "--requestheader-allowed-names"},
		"the authority of clients":          {clients, []string{"proxy-1"}, "--client-ca-file"},
		"no file":                           {proxies + "-absent", []string{"proxy-1"}, "--requestheader-client-ca-file"},
	} {
		o := New().Generic.Authentication
		o.ClientCert.ClientCA = clients
		o.RequestHeader.ClientCAFile, o.RequestHeader.AllowedNames = c.authority, c.allowed
		err := validateIdentityHeaders(o)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
