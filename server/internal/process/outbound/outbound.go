// Package outbound has what the server needs to call hosts of others: whom it believes, as whom it calls, where tenants may lead it, and
// how much it reads there.
package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/spf13/pflag"

	"k8s.io/klog/v2"
)

// Files hold it, in PEM. Each may be empty.
type Files struct {
	// Flag is what the names of the flags begin with.
	Flag string
	// CA holds certificate authorities of the hosts, besides those of the system.
	CA string
	// ClientCert and ClientKey prove to the hosts that this server calls.
	ClientCert, ClientKey string
}

// AddFlags adds a flag for each file; ca and clientCert tell what the first two are for.
func (f *Files) AddFlags(fs *pflag.FlagSet, ca, clientCert string) {
	fs.StringVar(&f.CA, f.Flag+"-ca-file", f.CA, ca)
	fs.StringVar(&f.ClientCert, f.Flag+"-client-cert-file", f.ClientCert, clientCert)
	fs.StringVar(&f.ClientKey, f.Flag+"-client-key-file", f.ClientKey, fmt.Sprintf("Key of --%s-client-cert-file.", f.Flag))
}

// Validate refuses a certificate without a key, and a key without a certificate.
func (f *Files) Validate() error {
	if (f.ClientCert == "") != (f.ClientKey == "") {
		return fmt.Errorf("--%[1]s-client-cert-file and --%[1]s-client-key-file: give both or none", f.Flag)
	}
	return nil
}

// TLS reads the files: the authorities once, the client certificate again for each connection.
func (f *Files) TLS() (*tls.Config, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("certificate authorities of the system: %w", err)
	}
	if f.CA != "" {
		content, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("--%s-ca-file: %w", f.Flag, err)
		}
		if !roots.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("--%s-ca-file: %s holds no certificate", f.Flag, f.CA)
		}
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if f.ClientCert != "" || f.ClientKey != "" {
		config.GetClientCertificate = f.clientCertificate
		KeepCertificate(config)
		if _, err := config.GetClientCertificate(nil); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// clientCertificate reads the certificate for one connection, so that one that was renewed on disk needs no restart.
func (f *Files) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	certificate, err := tls.LoadX509KeyPair(f.ClientCert, f.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("--%[1]s-client-cert-file and --%[1]s-client-key-file: %[2]w", f.Flag, err)
	}
	return &certificate, nil
}

// KeepCertificate makes a client, which reads its certificate for each connection, show the former one while reading fails.
func KeepCertificate(config *tls.Config) {
	read := config.GetClientCertificate
	if read == nil {
		return
	}
	var former atomic.Pointer[tls.Certificate]
	config.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		certificate, err := read(request)
		if err == nil {
			former.Store(certificate)
			return certificate, nil
		}
		if kept := former.Load(); kept != nil {
			klog.Background().Error(err, "Reloading a client certificate failed, using the previous one")
			return kept, nil
		}
		return nil, err
	}
}
