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

// certificatePlugins returns upstream's rules about who may approve and sign certificate requests. They ask the
// authorizer, which takes the cluster from the context.
func certificatePlugins(authz authorizer.UnconditionalAuthorizer) ([]admission.Interface, error) {
	approving, signer := approval.NewPlugin(), signing.NewPlugin()
	plugins := []admission.Interface{certificateKeys{}, approving, signer, subjectrestriction.NewPlugin()}
	for _, plugin := range plugins {
		if wants, ok := plugin.(initializer.WantsUnconditionalAuthorizer); ok {
			wants.SetUnconditionalAuthorizer(authz)
		}
		if valid, ok := plugin.(admission.InitializationValidator); ok {
			if err := valid.ValidateInitialization(); err != nil {
				return nil, fmt.Errorf("admission of certificates: %w", err)
			}
		}
	}
	return plugins, nil
}

// maxRSABits is the largest RSA key of a certificate request, as in TLS. Upstream verifies the signature of each request, in a time that
// grows with the square of the length.
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
	asked, err := certificates.ParseCSR(request.Spec.Request)
	if err != nil {
		return nil // upstream refuses it
	}
	if key, ok := asked.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSABits {
		return forbidden(a, "spec.request: the RSA key has %d bits, the limit is %d", key.N.BitLen(), maxRSABits)
	}
	return nil
}
