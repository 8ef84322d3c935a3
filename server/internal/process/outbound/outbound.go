// Package outbound calls other hosts: it has the certificates that the server trusts and presents, the networks that tenants may use, and
// the limits of responses.
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

// Files are the PEM files for calls to other hosts. Each may be empty.
type Files struct {
	// Flag is the prefix of the names of the flags.
	Flag string
	// CA contains certificate authorities of the hosts, in addition to those of the system.
	CA string
	// ClientCert and ClientKey identify this server to the hosts.
	ClientCert, ClientKey string
}

// AddFlags adds a flag for each file. ca and clientCert are the help texts of the first two.
func (f *Files) AddFlags(fs *pflag.FlagSet, ca, clientCert string) {
	fs.StringVar(&f.CA, f.Flag+"-ca-file", f.CA, ca)
	fs.StringVar(&f.ClientCert, f.Flag+"-client-cert-file", f.ClientCert, clientCert)
	fs.StringVar(&f.ClientKey, f.Flag+"-client-key-file", f.ClientKey, fmt.Sprintf("Key of --%s-client-cert-file.", f.Flag))
}

// Validate refuses a certificate without a key, and a key without a certificate.
func (f *Files) Validate() error {
	if (f.ClientCert == "") != (f.ClientKey == "") {
		return fmt.Errorf("--%[1]s-client-cert-file and --%[1]s-client-key-file: set both or neither", f.Flag)
	}
	return nil
}

// TLS reads the files: the authorities once, the client certificate for each connection.
func (f *Files) TLS() (*tls.Config, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authorities of the system: %w", err)
	}
	if f.CA != "" {
		content, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("--%s-ca-file: %w", f.Flag, err)
		}
		if !roots.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("--%s-ca-file: %s contains no certificate", f.Flag, f.CA)
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

// clientCertificate reads the certificate for one connection. A renewed certificate needs no restart.
func (f *Files) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	certificate, err := tls.LoadX509KeyPair(f.ClientCert, f.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("--%[1]s-client-cert-file and --%[1]s-client-key-file: %[2]w", f.Flag, err)
	}
	return &certificate, nil
}

// KeepCertificate makes a client that reads its certificate for each connection use the previous one while reading fails.
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
