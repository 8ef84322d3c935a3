package authorization

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Keys of extra values that pass the logical cluster to the webhook.
const (
	webhookClusterKey       = "authorization.kcp.io/cluster-name"
	legacyWebhookClusterKey = "authorization.kubernetes.io/cluster-name"
)

// NewWebhook returns an authorizer that calls the server in a kubeconfig, and caches its responses for each cluster.
func NewWebhook(kubeconfig, version string, authorizedTTL, unauthorizedTTL time.Duration) (authorizer.UnconditionalAuthorizer, error) {
	config, err := webhookutil.LoadKubeconfig(kubeconfig, nil)
	if err != nil {
		return nil, fmt.Errorf("--authorization-webhook-config-file: %w", err)
	}
	inner, err := webhook.New(config, version, authorizedTTL, unauthorizedTTL, *genericoptions.DefaultAuthWebhookRetryBackoff(),
		authorizer.DecisionNoOpinion,
		nil, "kcp", metrics.NoopAuthorizerMetrics{}, authorizationcel.NewDefaultCompiler())
	if err != nil {
		return nil, fmt.Errorf("--authorization-webhook-config-file: %w", err)
	}
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		return inner.Authorize(ctx, inCluster(ctx, a))
	}), nil
}

// inCluster returns a with extra values of the user that contain the logical cluster.
func inCluster(ctx context.Context, a authorizer.Attributes) authorizer.Attributes {
	cluster, ok := logicalcluster.From(ctx)
	u := a.GetUser()
	if !ok || u == nil {
		return a
	}
	extra := maps.Clone(u.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	extra[webhookClusterKey], extra[legacyWebhookClusterKey] = []string{cluster.String()}, []string{cluster.String()}
	return attributesOf{a, &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}}
}
