package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// source is a logical cluster whose webhooks and policies are asked about an object, and the one that the object is in.
type source struct{ rules, object logicalcluster.Name }

// sources returns where the rules about a request come from: its own cluster, and for an API that this has bound that of the
// provider, which is last.
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
		from = append(from, source{provider.Cluster, cluster})
	}
	return from, nil
}
