package options

import (
	"crypto/x509"
	"errors"
	"fmt"

	certutil "k8s.io/client-go/util/cert"
)

// validateProxies returns an error if others than named front proxies could describe users in headers. A server without other shards
// accepts what upstream accepts.
func (o *Options) validateProxies() error {
	headers := o.Generic.Authentication.RequestHeader
	if !o.Sharding.Enabled() || headers == nil || headers.ClientCAFile == "" {
		return nil
	}
	if len(headers.AllowedNames) == 0 {
		return errors.New("--requestheader-allowed-names: required with --peer-client-ca-file and --requestheader-client-ca-file: list the " +
			"common names in the certificates of the front proxies")
	}
	clients := o.Generic.Authentication.ClientCert
	if clients == nil || clients.ClientCA == "" {
		return nil
	}
	both, err := certifies(headers.ClientCAFile, clients.ClientCA)
	if err != nil {
		return err
	}
	if both {
		return fmt.Errorf("--requestheader-client-ca-file: %s accepts certificates of an authority in --client-ca-file: a user with a name of "+
			"--requestheader-allowed-names could act as any other user; create another authority for front proxies", headers.ClientCAFile)
	}
	return nil
}

// certifies reports whether the authorities in one file accept certificates of an authority in another file.
func certifies(file, other string) (bool, error) {
	accepted, err := certutil.CertsFromFile(file)
	if err != nil {
		return false, fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	authorities, err := certutil.CertsFromFile(other)
	if err != nil {
		return false, fmt.Errorf("--client-ca-file: %w", err)
	}
	pool, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range accepted {
		pool.AddCert(c)
	}
	for _, c := range authorities {
		intermediates.AddCert(c)
	}
	for _, c := range authorities {
		options := x509.VerifyOptions{Roots: pool, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
		if _, err := c.Verify(options); err == nil {
			return true, nil
		}
		for _, a := range accepted { // an authority without a valid time, or a renewed one with the same key
			if string(a.RawSubjectPublicKeyInfo) == string(c.RawSubjectPublicKeyInfo) {
				return true, nil
			}
		}
	}
	return false, nil
}
