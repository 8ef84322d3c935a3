package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/internal/admission/objectlimit"
)

// objectCountLimit refuses objects in clusters that have reached their limit, before quotas are charged, and in dry runs too. The storage
// decides again when it stores the object, because concurrent requests may have reached the limit first.
type objectCountLimit struct{ limits *objectlimit.Limits }

var _ admission.ValidationInterface = objectCountLimit{}

// Handles implements admission.Interface.
func (objectCountLimit) Handles(op admission.Operation) bool { return op == admission.Create }

// Validate implements admission.ValidationInterface.
func (o objectCountLimit) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" || isReview(a) {
		return nil
	}
	return o.limits.Check(ctx, a.GetResource().GroupResource(), a.GetName())
}
