package options

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

func TestTheServerCreatesItsCertificateOnce(t *testing.T) {
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
	trusted.AppendCertsFromPEM(made) // as in kubeconfigs
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
		t.Error("an existing certificate was replaced")
	}
}

func TestACertificateOfTheServerIsRenewedBeforeItExpires(t *testing.T) {
	directory, host := t.TempDir(), net.IPv4(10, 1, 2, 3)
	certificate, key := filepath.Join(directory, "apiserver.crt"), filepath.Join(directory, "apiserver.key")
	for name, test := range map[string]struct {
		age    time.Duration
		signer string // instead of the authority that the server creates
		want   bool
	}{
		"young":             {age: year / 2},
		"expires soon":      {age: year - renewBefore, want: true},
		"has expired":       {age: 2 * year, want: true},
		"of another issuer": {age: 2 * year, signer: "example"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := makeServingCertificate(certificate, key, time.Now().Add(-test.age), host, nil, nil); err != nil {
				t.Fatal(err)
			}
			if test.signer != "" {
				signed(t, certificate, key, test.signer, time.Now().Add(year-test.age))
			}
			before, err := tls.LoadX509KeyPair(certificate, key)
			if err != nil {
				t.Fatal(err)
			}
			if err := ensureServingCertificate(certificate, key, host, nil, nil); err != nil {
				t.Fatal(err)
			}
			after, err := tls.LoadX509KeyPair(certificate, key)
			if err != nil {
				t.Fatal(err)
			}
			if renewed := !after.Leaf.Equal(before.Leaf); renewed != test.want {
				t.Errorf("a certificate until %s is renewed: %t, want %t", before.Leaf.NotAfter, renewed, test.want)
			}
		})
	}
}

// A process that is killed between writing the certificate and its key leaves one of them.
func TestACertificateWithoutItsKeyIsReplaced(t *testing.T) {
	directory, host := t.TempDir(), net.IPv4(10, 1, 2, 3)
	certificate, key := filepath.Join(directory, "apiserver.crt"), filepath.Join(directory, "apiserver.key")
	if err := ensureServingCertificate(certificate, key, host, nil, nil); err != nil {
		t.Fatal(err)
	}
	former, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, fault := range map[string]func() error{
		"no key":                  func() error { return os.Remove(key) },
		"the key of a former one": func() error { return os.WriteFile(key, former, 0o600) },
	} {
		if err := makeServingCertificate(certificate, key, time.Now(), host, nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := fault(); err != nil {
			t.Fatal(err)
		}
		if err := ensureServingCertificate(certificate, key, host, nil, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// signed writes a certificate of another signer.
func signed(t *testing.T, certificate, key, signer string, end time.Time) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: signer}}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}, parent, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := certutil.WriteCert(certificate, pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der})); err != nil {
		t.Fatal(err)
	}
	if err := keyutil.WriteKey(key, encoded); err != nil {
		t.Fatal(err)
	}
}
