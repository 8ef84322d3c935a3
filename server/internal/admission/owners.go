package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
)

// maxOwners is how many owners an object may have: for each of them, the garbage collector asks whether it is there.
const maxOwners = 100

// boundedOwners refuses objects with very many owners. Those that are stored already may keep them.
type boundedOwners struct{ rules }

var _ admission.ValidationInterface = boundedOwners{}

// Validate implements admission.ValidationInterface.
func (boundedOwners) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	n := owners(a.GetObject())
	if n <= maxOwners || n <= owners(a.GetOldObject()) {
		return nil
	}
	return forbidden(a, "metadata.ownerReferences has %d owners, and may have %d", n, maxOwners)
}

// owners returns how many owners an object has, zero if there is none.
func owners(obj any) int {
	m, err := meta.Accessor(obj)
	if err != nil {
		return 0
	}
	return len(m.GetOwnerReferences())
}
