package admission

import (
	"fmt"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/approval"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/signing"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/subjectrestriction"
)

// certificatePlugins returns upstream's rules about who may approve and sign certificate requests. They ask the
// authorizer, which takes the cluster from the context.
func certificatePlugins(authz authorizer.UnconditionalAuthorizer) ([]admission.Interface, error) {
	approving, signer := approval.NewPlugin(), signing.NewPlugin()
	plugins := []admission.Interface{approving, signer, subjectrestriction.NewPlugin()}
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
