package builtin

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	clusterrolepolicybased "k8s.io/kubernetes/pkg/registry/rbac/clusterrole/policybased"
	clusterrolestore "k8s.io/kubernetes/pkg/registry/rbac/clusterrole/storage"
	clusterrolebindingpolicybased "k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding/policybased"
	clusterrolebindingstore "k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding/storage"
	rolepolicybased "k8s.io/kubernetes/pkg/registry/rbac/role/policybased"
	rolestore "k8s.io/kubernetes/pkg/registry/rbac/role/storage"
	rolebindingpolicybased "k8s.io/kubernetes/pkg/registry/rbac/rolebinding/policybased"
	rolebindingstore "k8s.io/kubernetes/pkg/registry/rbac/rolebinding/storage"
	rbacregistryvalidation "k8s.io/kubernetes/pkg/registry/rbac/validation"
)

// Roles resolves the rules of roles and users in the logical cluster of a context, and returns its default roles.
type Roles interface {
	rbacregistryvalidation.AuthorizationRuleResolver
	// DefaultClusterRole returns nil if no default role has the name.
	DefaultClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error)
	DefaultClusterRoles(ctx context.Context) ([]*rbacv1.ClusterRole, error)
	DefaultRoles(ctx context.Context, namespace string) ([]*rbacv1.Role, error)
	// Identify sets the metadata of a derived object of the cluster of ctx.
	Identify(ctx context.Context, obj metav1.Object, resource schema.GroupResource) error
}

// rbacProvider installs RBAC without upstream's bootstrap hook, which would store the default roles in one cluster, and
// with a resolver that knows the bootstrap policy, so that role bindings can refer to its roles, which are not stored.
type rbacProvider struct {
	authorizer authorizer.Authorizer
	rules      Roles
	registries *Registries
}

func (rbacProvider) GroupName() string { return rbacv1.GroupName }

func (p rbacProvider) NewRESTStorage(_ serverstorage.APIResourceConfigSource,
	getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info := genericapiserver.NewDefaultAPIGroupInfo(rbacv1.GroupName, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	roles, err := rolestore.NewREST(getter)
	if err != nil {
		return info, err
	}
	roleBindings, err := rolebindingstore.NewREST(getter)
	if err != nil {
		return info, err
	}
	clusterRoles, err := clusterrolestore.NewREST(getter)
	if err != nil {
		return info, err
	}
	clusterRoleBindings, err := clusterrolebindingstore.NewREST(getter)
	if err != nil {
		return info, err
	}
	// The server does not need the permissions that it grants.
	p.registries.add(rbacv1.GroupName, map[string]rest.Storage{
		"roles": roles, "rolebindings": roleBindings, "clusterroles": clusterRoles, "clusterrolebindings": clusterRoleBindings,
	})
	info.VersionedResourcesStorageMap[rbacv1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"roles":               shownRoles(rolepolicybased.NewStorage(roles, p.authorizer, p.rules), p.rules),
		"rolebindings":        rolebindingpolicybased.NewStorage(roleBindings, p.authorizer, p.rules),
		"clusterroles":        shownClusterRoles(clusterrolepolicybased.NewStorage(clusterRoles, p.authorizer, p.rules), p.rules),
		"clusterrolebindings": clusterrolebindingpolicybased.NewStorage(clusterRoleBindings, p.authorizer, p.rules),
	}
	return info, nil
}
