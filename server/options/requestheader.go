package options

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/util/cert"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// validateIdentityHeaders returns an error if a shard would accept the identity of users from more than its front proxies: from every
// certificate of the authorities, or from certificates of clients.
func validateIdentityHeaders(o *kubeoptions.BuiltInAuthenticationOptions) error {
	headers := o.RequestHeader
	if headers == nil || headers.ClientCAFile == "" {
		return nil
	}
	if len(headers.AllowedNames) == 0 {
		return errors.New("--requestheader-client-ca-file: requires --requestheader-allowed-names in an installation with several shards: " +
			"the common names of the certificates of its front proxies")
	}
	if o.ClientCert == nil || o.ClientCert.ClientCA == "" {
		return nil
	}
	ofProxies, err := cert.CertsFromFile(headers.ClientCAFile)
	if err != nil {
		return fmt.Errorf("--requestheader-client-ca-file: %w", err)
	}
	ofClients, err := cert.CertsFromFile(o.ClientCert.ClientCA)
	if err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	for _, authority := range ofProxies {
		if slices.ContainsFunc(ofClients, func(c *x509.Certificate) bool { return c.Equal(authority) }) {
			return fmt.Errorf("--requestheader-client-ca-file: must not have an authority of --client-ca-file, got %q in both: a client whose "+
				"certificate has the name of a front proxy could act as any user", authority.Subject)
		}
	}
	return nil
}
