package builtin

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// discreet returns an authorizer for access reviews. It hides the reasons of denials: the reason of inner may contain groups,
// exports or phases of workspaces that the caller must not see.
func discreet(inner authorizer.UnconditionalAuthorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		decision, reason, err := inner.Authorize(ctx, a)
		if decision != authorizer.DecisionAllow {
			reason = "access denied"
		}
		return decision, reason, err
	})
}
