package builtin

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// discreet returns an authorizer for access reviews. It does not explain refusals: the reason of inner may name groups, exports or
// phases of workspaces that the caller may not see.
func discreet(inner authorizer.UnconditionalAuthorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		decision, reason, err := inner.Authorize(ctx, a)
		if decision != authorizer.DecisionAllow {
			reason = "access denied"
		}
		return decision, reason, err
	})
}
