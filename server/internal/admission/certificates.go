package admission

import (
	"context"
	"crypto/rsa"
	"fmt"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/approval"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/signing"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/subjectrestriction"
)

var certificatesGroup = []string{certificates.GroupName}

// certificatePlugins returns the limit of keys, and upstream's rules for who may approve and sign certificate requests and for their
// subjects. They call the authorizer, which takes the cluster from the context.
func certificatePlugins(authz authorizer.UnconditionalAuthorizer) ([]namedPlugin, error) {
	plugins := []namedPlugin{
		{"kcp.io/CertificateKeys", certificateKeys{}, certificatesGroup},
		{approval.PluginName, approval.NewPlugin(), certificatesGroup},
		{signing.PluginName, signing.NewPlugin(), certificatesGroup},
		{subjectrestriction.PluginName, subjectrestriction.NewPlugin(), certificatesGroup},
	}
	for _, named := range plugins {
		if wants, ok := named.plugin.(initializer.WantsUnconditionalAuthorizer); ok {
			wants.SetUnconditionalAuthorizer(authz)
		}
		if valid, ok := named.plugin.(admission.InitializationValidator); ok {
			if err := valid.ValidateInitialization(); err != nil {
				return nil, fmt.Errorf("initializing admission plugin %s: %w", named.name, err)
			}
		}
	}
	return plugins, nil
}

// maxRSABits is the length of the largest RSA key of a certificate request, as in TLS. Upstream verifies the signature of each request, and
// the time for that grows with the square of the length.
const maxRSABits = 8192

// certificateKeys refuses requests with larger keys. It is a mutating plugin that changes nothing: upstream verifies the signature
// before it calls validating ones.
type certificateKeys struct{}

var _ admission.MutationInterface = certificateKeys{}

// Handles implements admission.Interface.
func (certificateKeys) Handles(operation admission.Operation) bool {
	return operation == admission.Create
}

// Admit implements admission.MutationInterface.
func (certificateKeys) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	request, ok := a.GetObject().(*certificates.CertificateSigningRequest)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	parsed, err := certificates.ParseCSR(request.Spec.Request)
	if err != nil {
		return nil // upstream refuses it
	}
	if key, ok := parsed.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSABits {
		return forbidden(a, "spec.request: the RSA key has %d bits, the limit is %d", key.N.BitLen(), maxRSABits)
	}
	return nil
}
