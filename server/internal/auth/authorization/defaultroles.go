package authorization

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/derived"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// defaultClusterRoles are the roles of the bootstrap policy that are visible in each logical cluster.
var defaultClusterRoles = []string{"admin", "cluster-admin", "edit", "view"}

// AuthenticationConfig is the ConfigMap in the namespace kube-system that authenticationReader may read.
const (
	AuthenticationConfig = "extension-apiserver-authentication"
	authenticationReader = "extension-apiserver-authentication-reader"
)

// maxShownBytes limits the size of the rules of a visible default role: no stored role is larger.
const maxShownBytes = 1 << 20

// namespaceRoles are the roles of the bootstrap policy in the namespace kube-system, by name.
func namespaceRoles() map[string]*rbacv1.Role {
	roles := map[string]*rbacv1.Role{}
	for _, role := range bootstrappolicy.NamespaceRoles()[metav1.NamespaceSystem] {
		if role.Name == authenticationReader {
			roles[role.Name] = role.DeepCopy()
		}
	}
	return roles
}

// DefaultClusterRole returns a default ClusterRole as it applies in the cluster of ctx, with the rules of the roles that it
// aggregates; nil if no default role has that name.
func (r *Rules) DefaultClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	role := r.policy.bootstrap.clusterRoles[name]
	if role == nil || !slices.Contains(defaultClusterRoles, name) {
		return nil, nil
	}
	e, own, err := r.aggregation(ctx)
	if err != nil {
		return nil, err
	}
	defer e.end()
	return r.policy.shown(e, role, own), nil
}

// DefaultClusterRoles returns the default ClusterRoles of the cluster of ctx, without those that a stored role replaces.
func (r *Rules) DefaultClusterRoles(ctx context.Context) ([]*rbacv1.ClusterRole, error) {
	e, own, err := r.aggregation(ctx)
	if err != nil {
		return nil, err
	}
	defer e.end()
	var roles []*rbacv1.ClusterRole
	for _, name := range defaultClusterRoles {
		if !slices.ContainsFunc(own, func(role *rbacv1.ClusterRole) bool { return role.Name == name }) {
			roles = append(roles, r.policy.shown(e, r.policy.bootstrap.clusterRoles[name], own))
		}
	}
	return roles, nil
}

// aggregation returns the evaluation that limits the aggregation of roles in the cluster of ctx, and the roles of the
// cluster, by name.
func (r *Rules) aggregation(ctx context.Context) (*evaluation, []*rbacv1.ClusterRole, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, nil, err
	}
	own, err := r.policy.set.ClusterRoles.List(cluster)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(own, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	return &evaluation{Context: ctx, cluster: cluster, lanes: r.lanes}, own, nil
}

// DefaultRoles returns the default Roles of a namespace of the cluster of ctx; no namespace means all.
func (r *Rules) DefaultRoles(ctx context.Context, namespace string) ([]*rbacv1.Role, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil || (namespace != "" && namespace != metav1.NamespaceSystem) {
		return nil, err
	}
	var roles []*rbacv1.Role
	for name, role := range r.policy.bootstrap.roles {
		if _, err := r.policy.set.Roles.Get(cluster, role.Namespace, name); !apierrors.IsNotFound(err) {
			continue
		}
		shown := role.DeepCopy()
		r.policy.identify(shown, cluster, rbacv1.Resource("roles"))
		roles = append(roles, shown)
	}
	return roles, nil
}

// shown returns a default role with its aggregated rules, each distinct rule once, in an order that does not change. It omits rules
// that exceed the limits of an evaluation or an object.
func (p localPolicy) shown(e *evaluation, role *rbacv1.ClusterRole, own []*rbacv1.ClusterRole) *rbacv1.ClusterRole {
	shown := role.DeepCopy()
	p.identify(shown, e.cluster, rbacv1.Resource("clusterroles"))
	if role.AggregationRule == nil {
		return shown
	}
	shown.Rules = nil
	known, size := map[string]bool{}, 0
	for _, rule := range p.bootstrap.aggregate(e, role, own).Rules {
		key, err := rule.Marshal()
		if err != nil || known[string(key)] {
			continue
		}
		if size += len(key); size > maxShownBytes {
			break
		}
		known[string(key)] = true
		shown.Rules = append(shown.Rules, *rule.DeepCopy())
	}
	return shown
}

// Identify sets the metadata of a derived object of the cluster of ctx.
func (r *Rules) Identify(ctx context.Context, obj metav1.Object, resource schema.GroupResource) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err == nil {
		r.policy.identify(obj, cluster, resource)
	}
	return err
}

func (p localPolicy) identify(obj metav1.Object, cluster logicalcluster.Name, resource schema.GroupResource) {
	var of types.UID
	var created metav1.Time
	if lc, err := p.set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName); err == nil {
		of, created = lc.UID, lc.CreationTimestamp
	}
	derived.Identify(obj, cluster, resource, of, created)
}
