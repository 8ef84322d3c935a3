package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// The functions of this file wait until the informers have all writes that this server has acknowledged, see informers.Informer.Current.
// Without that, a request could miss an object that an earlier request has just stored.

// currentMapper returns the mapper of the cluster of ctx, with all definitions and bindings of the cluster.
func (c Config) currentMapper(ctx context.Context) (meta.RESTMapper, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	c.Set.CustomResourceDefinitions.Current(ctx, cluster)
	c.Set.APIBindings.Current(ctx, cluster)
	return c.RESTMapper(ctx)
}

// cluster returns the logical cluster at a path, also if another shard has it; an empty path means the cluster from. An error is retriable.
func (c Config) cluster(ctx context.Context, from logicalcluster.Name, path string) (logicalcluster.Name, bool, error) {
	return c.References.Cluster(ctx, from, path)
}
