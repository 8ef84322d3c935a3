package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// The functions of this file wait until the informers have all writes that this server has acknowledged, see informers.Informer.Current.
// Without that, a request could miss an object that an earlier request has just stored.

// currentAuthorizer decides with all roles and role bindings of the cluster of ctx that this server has acknowledged.
type currentAuthorizer struct {
	authorizer.UnconditionalAuthorizer
	config Config
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (c currentAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if cluster, err := logicalcluster.NameFrom(ctx); err == nil {
		set := c.config.Set
		set.ClusterRoles.Current(ctx, cluster)
		set.ClusterRoleBindings.Current(ctx, cluster)
		set.Roles.Current(ctx, cluster)
		set.RoleBindings.Current(ctx, cluster)
	}
	return c.UnconditionalAuthorizer.Authorize(ctx, a)
}

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

// cluster returns the logical cluster at a path; an empty path means the cluster from.
func (c Config) cluster(ctx context.Context, from logicalcluster.Name, path string) (logicalcluster.Name, bool) {
	if path != "" {
		c.Tree.Current(ctx, path)
	}
	return c.Exports.Cluster(from, path)
}
