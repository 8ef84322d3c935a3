package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file holds look-ups of what other requests may have stored a moment ago. Each waits until the informers have what this server has
// acknowledged, see informers.Informer.Current.

// currentAuthorizer decides by all rules of the cluster of ctx that this server has acknowledged.
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

// currentMapper returns the mapper of the cluster of ctx, with all that is defined and bound there.
func (c Config) currentMapper(ctx context.Context) (meta.RESTMapper, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	c.Set.CustomResourceDefinitions.Current(ctx, cluster)
	c.Set.APIBindings.Current(ctx, cluster)
	return c.RESTMapper(ctx)
}

// cluster returns the logical cluster that a path leads to; an empty path leads to from.
func (c Config) cluster(ctx context.Context, from logicalcluster.Name, path string) (logicalcluster.Name, bool) {
	if path != "" {
		c.Tree.Current(ctx, path)
	}
	return c.Exports.Cluster(from, path)
}
