package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/internal/admission/objectlimit"
)

// objectCountLimit refuses objects in clusters that are full, before quotas are charged for them, and in dry runs as well.
// What is decided here is decided again when the object is stored: others may have been faster.
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
