package builtin

import (
	"context"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestReviewsDoNotExplainDenials(t *testing.T) {
	for decision, want := range map[authorizer.Decision]string{
		authorizer.DecisionAllow: "the reason", authorizer.DecisionDeny: "access denied", authorizer.DecisionNoOpinion: "access denied",
	} {
		inner := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return decision, "the reason", nil
		})
		if got, reason, err := discreet(inner).Authorize(t.Context(), authorizer.AttributesRecord{}); got != decision || reason != want || err != nil {
			t.Errorf("%v: got %v, %q, %v, want %q", decision, got, reason, err, want)
		}
	}
}
