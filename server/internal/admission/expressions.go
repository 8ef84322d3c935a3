package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/internal/apis/expressions"
)

// boundedExpressions refuses webhooks and policies with expressions that can create values of unbounded size.
type boundedExpressions struct{ rules }

var _ admission.ValidationInterface = boundedExpressions{}

// Validate implements admission.ValidationInterface.
func (boundedExpressions) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Group != "admissionregistration.k8s.io" || a.GetSubresource() != "" || a.GetObject() == nil {
		return nil
	}
	if err := expressions.CheckAll(a.GetObject()); err != nil {
		return forbidden(a, "%v", err)
	}
	return nil
}
