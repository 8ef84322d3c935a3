package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// source is a logical cluster whose webhooks and policies apply to an object, and the logical cluster of the object.
type source struct{ rules, object logicalcluster.Name }

// sources returns the logical clusters whose webhooks and policies apply to a request: its own cluster and, for a bound API, the cluster of
// the provider, which is last.
func sources(ctx context.Context, config Config, a admission.Attributes) ([]source, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	config.Set.APIBindings.Current(ctx, cluster)
	if a.GetNamespace() != "" {
		config.Set.Namespaces.Current(ctx, cluster) // rules select namespaces by their labels
	}
	from := []source{{cluster, cluster}}
	if provider, ok := config.Exports.Source(cluster, a.GetResource().GroupResource()); ok && provider.Cluster != cluster {
		if err := config.Exports.Unloaded(provider); err != nil && !authorization.IsServer(ctx) { // its webhooks are not known
			return nil, err
		}
		from = append(from, source{provider.Cluster, cluster})
	}
	return from, nil
}
