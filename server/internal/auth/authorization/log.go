package authorization

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// outcome returns the name of a decision in audit annotations and logs.
func outcome(decision authorizer.Decision, delegate bool) string {
	switch {
	case delegate:
		return "Delegated"
	case decision == allow:
		return "Allowed"
	case decision == deny:
		return "Denied"
	}
	return "NoOpinion"
}

// logDecision logs what a step decides.
func logDecision(ctx context.Context, a authorizer.Attributes, step string, decision authorizer.Decision, reason string, delegate bool) {
	logger := decisionlog.ForDecision(ctx)
	if !logger.Enabled() {
		return
	}
	cluster, _ := logicalcluster.From(ctx)
	logger = logger.WithValues(decisionlog.Cluster, cluster.String(), decisionlog.Step, step,
		decisionlog.Decision, outcome(decision, delegate), decisionlog.Reason, reason,
		decisionlog.User, a.GetUser().GetName(), decisionlog.Verb, a.GetVerb())
	if !a.IsResourceRequest() {
		logger.Info("Authorization step decided", decisionlog.Path, a.GetPath())
		return
	}
	logger.Info("Authorization step decided", decisionlog.Resource, a.GetAPIGroup()+"/"+a.GetResource()+"/"+a.GetSubresource(),
		decisionlog.Namespace, a.GetNamespace(), decisionlog.Name, a.GetName())
}
