package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
)

// maxOwners is how many owners an object may have: for each of them, the garbage collector checks that it exists.
const maxOwners = 100

// boundedOwners refuses objects with too many owners. Stored objects may keep theirs.
type boundedOwners struct{ rules }

var _ admission.ValidationInterface = boundedOwners{}

// Validate implements admission.ValidationInterface.
func (boundedOwners) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	n := owners(a.GetObject())
	if n <= maxOwners || n <= owners(a.GetOldObject()) {
		return nil
	}
	return forbidden(a, "metadata.ownerReferences has %d owners, the limit is %d", n, maxOwners)
}

// owners returns the number of owners of an object, or zero if there is no object.
func owners(obj any) int {
	m, err := meta.Accessor(obj)
	if err != nil {
		return 0
	}
	return len(m.GetOwnerReferences())
}
