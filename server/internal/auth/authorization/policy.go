package authorization

import (
	"context"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Groups with a meaning for the server.
const (
	AdminGroup               = "system:kcp:admin"
	LogicalClusterAdminGroup = "system:kcp:logical-cluster-admin"
	ExternalAdminGroup       = "system:kcp:external-logical-cluster-admin"
	WorkspaceBootstrapper    = "system:kcp:tenancy:workspace-bootstrapper"
	accessRole               = "system:kcp:workspace:access"
	metricsReaderRole        = "system:kcp:metrics-reader"
	tenancyReaderRole        = "system:kcp:tenancy:reader"
)

// BindingPrefix is the prefix of users and groups of consumers in policies of exports. No user or group has a name with this
// prefix.
const BindingPrefix = "apis.kcp.io:binding:"

// bootstrapPolicy is the policy that every logical cluster has without storing it. It is immutable.
type bootstrapPolicy struct {
	clusterRoles map[string]*rbacv1.ClusterRole
	sorted       []*rbacv1.ClusterRole // the clusterRoles, by name
	bindings     []*rbacv1.ClusterRoleBinding
	roles        map[string]*rbacv1.Role // by name, in the namespace kube-system
}

func newBootstrapPolicy() *bootstrapPolicy {
	p := &bootstrapPolicy{clusterRoles: map[string]*rbacv1.ClusterRole{}, roles: namespaceRoles()}
	for _, roles := range [][]rbacv1.ClusterRole{bootstrappolicy.ClusterRoles(), kcpRoles()} {
		for _, role := range roles {
			p.clusterRoles[role.Name] = role.DeepCopy()
		}
	}
	p.sorted = slices.SortedFunc(maps.Values(p.clusterRoles), func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	bindings := append(bootstrappolicy.ClusterRoleBindings(), kcpBindings()...)
	for i := range bindings {
		p.bindings = append(p.bindings, &bindings[i])
	}
	return p
}

// aggregate returns role with the rules of every role that its aggregation rule selects, from the roles of a cluster
// and those of the bootstrap policy, whose aggregation rules count as well. It omits rules that exceed the limits of
// an evaluation.
func (p *bootstrapPolicy) aggregate(e *evaluation, role *rbacv1.ClusterRole, own []*rbacv1.ClusterRole) *rbacv1.ClusterRole {
	if role.AggregationRule == nil {
		return role
	}
	aggregated := *role
	aggregated.Rules = append([]rbacv1.PolicyRule(nil), role.Rules...)
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			continue // upstream's policy has no such selector
		}
		if !e.spend(len(own) / namesPerWeight) {
			break
		}
		for _, selected := range own {
			if selector.Matches(labels.Set(selected.Labels)) && e.spend(len(selected.Rules)) {
				aggregated.Rules = append(aggregated.Rules, selected.Rules...)
			}
		}
		for _, selected := range p.sorted {
			if selected.Name != role.Name && selector.Matches(labels.Set(selected.Labels)) {
				aggregated.Rules = append(aggregated.Rules, p.aggregate(e, selected, own).Rules...)
			}
		}
	}
	return &aggregated
}

// The four getters of the bootstrap policy, which has only cluster-wide roles and bindings.

func (p *bootstrapPolicy) GetClusterRole(_ context.Context, name string) (*rbacv1.ClusterRole, error) {
	if role, ok := p.clusterRoles[name]; ok {
		return p.aggregate(nil, role, nil), nil
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("clusterroles"), name)
}

func (p *bootstrapPolicy) ListClusterRoleBindings(context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	return p.bindings, nil
}

func (p *bootstrapPolicy) GetRole(_ context.Context, _, name string) (*rbacv1.Role, error) {
	return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
}

func (p *bootstrapPolicy) ListRoleBindings(context.Context, string) ([]*rbacv1.RoleBinding, error) {
	return nil, nil
}

// localPolicy has the stored roles and role bindings of the cluster of the context. Its bindings may refer to ClusterRoles of
// system:admin and of the bootstrap policy, and roles of the cluster are aggregated into the latter. RoleBindings in kube-system may
// refer to Roles of the bootstrap policy.
type localPolicy struct {
	set       *informers.Set
	bootstrap *bootstrapPolicy
}

func (p localPolicy) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	e := evaluationOf(ctx)
	if !e.first(roleKey{name: name}) {
		return visited, nil
	}
	role, err := p.set.ClusterRoles.Get(cluster, "", name)
	if !apierrors.IsNotFound(err) {
		return role, err
	}
	role, ok := p.bootstrap.clusterRoles[name]
	if !ok {
		return p.set.ClusterRoles.Get(logicalcluster.SystemAdmin, "", name)
	}
	own, err := p.set.ClusterRoles.List(cluster)
	if err != nil {
		return nil, err
	}
	return p.bootstrap.aggregate(e, role, own), nil
}

// visited replaces a role whose rules the evaluation has already visited.
var visited = &rbacv1.ClusterRole{}

func (p localPolicy) ListClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	bindings, err := p.set.ClusterRoleBindings.List(cluster)
	if err != nil {
		return nil, err
	}
	// The owner's binding is the first, regardless of the weight of the others. Only one look into the informer decides whether it is stored:
	// it may arrive at any time.
	owners := slices.IndexFunc(bindings, func(b *rbacv1.ClusterRoleBinding) bool { return b.Name == OwnersBindingName })
	if owners < 0 {
		if unstored, ok := p.ownersBinding(cluster); ok {
			owners, bindings = len(bindings), append(bindings, unstored)
		}
	}
	if owners > 0 {
		bindings[0], bindings[owners] = bindings[owners], bindings[0]
	}
	return evaluated(evaluationOf(ctx), bindings, func(b *rbacv1.ClusterRoleBinding) []rbacv1.Subject { return b.Subjects }), nil
}

// evaluated returns the first bindings, as many as an evaluation may read.
func evaluated[B any](e *evaluation, bindings []B, subjects func(B) []rbacv1.Subject) []B {
	weight := 0
	for i, binding := range bindings {
		if weight += 1 + len(subjects(binding))/namesPerWeight; weight > maxBindings && e != nil {
			e.cut = true
			bindings = bindings[:i]
			break
		}
	}
	e.spend(min(weight, maxBindings))
	return bindings
}

// ownersBinding returns the role binding that makes the owner of a cluster its administrator, which applies as long as the binding is not
// stored. The first request that enters the cluster stores it. If it is deleted later, it applies from memory only.
func (p localPolicy) ownersBinding(cluster logicalcluster.Name) (*rbacv1.ClusterRoleBinding, bool) {
	if cluster.IsSystem() {
		return nil, false // the system clusters of the server have no owner
	}
	lc, err := p.set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return nil, false
	}
	return OwnersBinding(lc)
}

// OwnersBindingName is the name of the binding that OwnersBinding returns.
const OwnersBindingName = "workspace-admin"

// OwnersBinding returns the role binding that makes the owner of a logical cluster its administrator; false if the
// cluster has no owner.
func OwnersBinding(lc *corev1alpha1.LogicalCluster) (*rbacv1.ClusterRoleBinding, bool) {
	if lc.Spec.CreatedBy == nil || lc.Spec.CreatedBy.Username == "" {
		return nil, false
	}
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: OwnersBindingName},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: lc.Spec.CreatedBy.Username}},
	}, true
}

func (p localPolicy) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	if !evaluationOf(ctx).first(roleKey{namespace, name}) {
		return &rbacv1.Role{}, nil
	}
	role, err := p.set.Roles.Get(cluster, namespace, name)
	if standard, ok := p.bootstrap.roles[name]; ok && namespace == standard.Namespace && apierrors.IsNotFound(err) {
		return standard, nil
	}
	return role, err
}

func (p localPolicy) ListRoleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	bindings, err := p.set.RoleBindings.ListNamespace(cluster, namespace)
	return evaluated(evaluationOf(ctx), bindings, func(b *rbacv1.RoleBinding) []rbacv1.Subject { return b.Subjects }), err
}

func rule(groups, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: groups, Resources: resources, Verbs: verbs}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) rbacv1.ClusterRole {
	return rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

// kcpRoles are the roles that Kubernetes does not have.
func kcpRoles() []rbacv1.ClusterRole {
	tenancy, core := []string{"tenancy.kcp.io"}, []string{"core.kcp.io"}
	return []rbacv1.ClusterRole{
		clusterRole(tenancyReaderRole,
			rule(tenancy, []string{"workspaces", "workspacetypes"}, "get", "list", "watch"),
			rule(core, []string{"logicalclusters"}, "get", "list", "watch")),
		clusterRole(WorkspaceBootstrapper,
			rule([]string{"*"}, []string{"*"}, "*"),
			rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}),
		clusterRole(LogicalClusterAdminGroup,
			rule(core, []string{"logicalclusters", "logicalclusters/status"}, "*"),
			rule(tenancy, []string{"workspaces"}, "get", "update", "delete")),
		clusterRole(ExternalAdminGroup,
			rule(core, []string{"logicalclusters", "logicalclusters/status"}, "get", "update", "delete"),
			rule(tenancy, []string{"workspaces"}, "get", "update", "patch", "delete"),
			rule([]string{""}, []string{"serviceaccounts", "secrets"}, "get"),
			rule([]string{"authorization.k8s.io"}, []string{"subjectaccessreviews"}, "create"),
			rule([]string{"apiextensions.k8s.io"}, []string{"customresourcedefinitions"}, "get", "create"),
			rbacv1.PolicyRule{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}}),
		clusterRole(accessRole, rbacv1.PolicyRule{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}}),
		clusterRole(metricsReaderRole, rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}),
	}
}

func kcpBindings() []rbacv1.ClusterRoleBinding {
	bind := func(name, role string, groups ...string) rbacv1.ClusterRoleBinding {
		binding := rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
		for _, group := range groups {
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group})
		}
		return binding
	}
	return []rbacv1.ClusterRoleBinding{
		bind("system:kcp:admin:cluster-admin", "cluster-admin", AdminGroup),
		bind(WorkspaceBootstrapper, WorkspaceBootstrapper, WorkspaceBootstrapper, BindingPrefix+WorkspaceBootstrapper),
		bind(LogicalClusterAdminGroup, LogicalClusterAdminGroup, LogicalClusterAdminGroup),
		bind(ExternalAdminGroup, ExternalAdminGroup, ExternalAdminGroup),
	}
}
