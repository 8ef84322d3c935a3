package options

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestTheServerMakesItselfACertificateOnce(t *testing.T) {
	directory := t.TempDir()
	certificate, key := filepath.Join(directory, "apiserver.crt"), filepath.Join(directory, "apiserver.key")
	ensure := func() []byte {
		t.Helper()
		if err := ensureServingCertificate(certificate, key, net.IPv4(10, 1, 2, 3), []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(certificate)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	made := ensure()
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := pair.PrivateKey.(*ecdsa.PrivateKey); !ok {
		t.Errorf("the key is a %T, want one of an elliptic curve", pair.PrivateKey)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(made) // as kubeconfigs have it
	for _, host := range []string{"localhost", "127.0.0.1", "10.1.2.3"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: trusted}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: "other.example.com", Roots: trusted}); err == nil {
		t.Error("the certificate is valid for any name")
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v, want mode 0600", info, err)
	}
	if again := ensure(); string(again) != string(made) {
		t.Error("a certificate that exists was replaced")
	}
}
