package builtin

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/rbac"

	"github.com/kcplane/kcp/server/internal/apis/derived"
)

// reasonOfRoles is the reason in errors for writing default roles.
const reasonOfRoles = "the server derives the default roles in each logical cluster; create a role with another name, " +
	"or label a ClusterRole with rbac.authorization.k8s.io/aggregate-to-view, -edit or -admin to extend them"

// roleStorage is upstream's storage of Roles or ClusterRoles.
type roleStorage interface {
	rest.StandardStorage
	rest.Scoper
	rest.SingularNameProvider
	rest.StorageVersionProvider
}

// The methods of derived.Storage take precedence over those of the embedded storage, which are one level deeper.
type (
	shownRoleStorage struct {
		*derived.Storage
		upstreamRoles
	}
	upstreamRoles struct{ roleStorage }
)

func shownClusterRoles(stored roleStorage, roles Roles) rest.Storage {
	return shownRoleStorage{&derived.Storage{
		Stored: stored, Resource: rbacv1.Resource("clusterroles"), Reason: reasonOfRoles,
		Source: source[*rbacv1.ClusterRole]{
			get: roles.DefaultClusterRole,
			list: func(ctx context.Context, _ string) ([]*rbacv1.ClusterRole, error) {
				return roles.DefaultClusterRoles(ctx)
			},
		},
		Append: func(list, obj runtime.Object) {
			l := list.(*rbac.ClusterRoleList)
			l.Items = append(l.Items, *obj.(*rbac.ClusterRole))
		},
	}, upstreamRoles{stored}}
}

func shownRoles(stored roleStorage, roles Roles) rest.Storage {
	return shownRoleStorage{&derived.Storage{
		Stored: stored, Resource: rbacv1.Resource("roles"), Reason: reasonOfRoles, Source: source[*rbacv1.Role]{list: roles.DefaultRoles},
		Append: func(list, obj runtime.Object) {
			l := list.(*rbac.RoleList)
			l.Items = append(l.Items, *obj.(*rbac.Role))
		},
	}, upstreamRoles{stored}}
}

// source is a derived.Source of objects of an external version, which it converts to the internal one.
type source[External interface {
	comparable
	runtime.Object
	metav1.Object
}] struct {
	// get returns nil for a name that is not derived. If get is nil, objects are found in list.
	get  func(ctx context.Context, name string) (External, error)
	list func(ctx context.Context, namespace string) ([]External, error)
}

// Get implements derived.Source.
func (s source[External]) Get(ctx context.Context, name string) (runtime.Object, error) {
	var none External
	if s.get != nil {
		obj, err := s.get(ctx, name)
		if err != nil || obj == none {
			return nil, err
		}
		return s.internal(obj)
	}
	all, err := s.List(ctx)
	for _, obj := range all {
		if m, err := meta.Accessor(obj); err == nil && m.GetName() == name {
			return obj, nil
		}
	}
	return nil, err
}

// List implements derived.Source.
func (s source[External]) List(ctx context.Context) ([]runtime.Object, error) {
	namespace, _ := request.NamespaceFrom(ctx)
	all, err := s.list(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var objects []runtime.Object
	for _, external := range all {
		obj, err := s.internal(external)
		if err != nil {
			return nil, err
		}
		objects = append(objects, obj)
	}
	return objects, nil
}

func (s source[External]) internal(obj External) (runtime.Object, error) {
	return legacyscheme.Scheme.UnsafeConvertToVersion(obj, runtime.InternalGroupVersioner)
}
