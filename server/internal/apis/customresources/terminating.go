package customresources

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/internal/process/stack"
)

type terminatingKey struct{}

// withTerminating marks a request for a resource whose definition is being deleted in the cluster of the request.
func withTerminating(ctx context.Context) context.Context {
	return context.WithValue(ctx, terminatingKey{}, true)
}

// createGuard rejects creation, by any verb, in marked requests. It replaces upstream's own guard, because upstream's
// handler is shared with clusters in which the definition is not being deleted. It also rejects objects whose
// validation, which follows mutating admission, would take too long.
type createGuard struct {
	chain   admission.Interface
	weights weights
}

var (
	_ admission.MutationInterface   = createGuard{}
	_ admission.ValidationInterface = createGuard{}
)

// Handles implements admission.Interface.
func (g createGuard) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update || g.chain.Handles(op)
}

// Admit implements admission.MutationInterface.
func (g createGuard) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	stack.Grow() // a goroutine of its own serves the request from the first admission on
	if err := g.refuse(ctx, a); err != nil {
		return err
	}
	if next, ok := g.chain.(admission.MutationInterface); ok && next.Handles(a.GetOperation()) {
		if err := next.Admit(ctx, a, o); err != nil {
			return err
		}
	}
	return g.weights.check(a)
}

// Validate implements admission.ValidationInterface.
func (g createGuard) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := g.refuse(ctx, a); err != nil {
		return err
	}
	if next, ok := g.chain.(admission.ValidationInterface); ok && next.Handles(a.GetOperation()) {
		return next.Validate(ctx, a, o)
	}
	return nil
}

func (g createGuard) refuse(ctx context.Context, a admission.Attributes) error {
	if a.GetOperation() != admission.Create || ctx.Value(terminatingKey{}) == nil {
		return nil
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(),
		errors.New("create not allowed while custom resource definition is terminating"))
}
