package authorization

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Current returns inner, which decides with all roles and role bindings of the cluster of a context that this server has acknowledged.
func Current(set *informers.Set, inner authorizer.UnconditionalAuthorizer) authorizer.UnconditionalAuthorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if cluster, err := logicalcluster.NameFrom(ctx); err == nil {
			Await(ctx, set, cluster)
		}
		return inner.Authorize(ctx, a)
	})
}

// Await returns when all roles and role bindings of a cluster that this server has acknowledged are in the informers.
func Await(ctx context.Context, set *informers.Set, cluster logicalcluster.Name) {
	set.ClusterRoles.Current(ctx, cluster)
	set.ClusterRoleBindings.Current(ctx, cluster)
	set.Roles.Current(ctx, cluster)
	set.RoleBindings.Current(ctx, cluster)
}
