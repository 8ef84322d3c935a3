package feed

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Words of ReplicateAnnotation.
const (
	wordAPIs    = "apis"
	wordTenancy = "tenancy"
	wordCore    = "core"
)

// surroundings are what the rules of offering know of the logical cluster of an object.
type surroundings struct {
	cluster logicalcluster.Name
	// exports and types report whether the cluster has APIExports, and WorkspaceTypes.
	exports, types bool
	// roles and bindings are the ClusterRoles, by name, and the ClusterRoleBindings of the cluster.
	roles    map[string]*rbacv1.ClusterRole
	bindings []*rbacv1.ClusterRoleBinding
	// named are the ClusterRoles that a binding of a user or group of consumers refers to, by name.
	named map[string]bool
}

// newSurroundings returns what the rules know of a cluster with these objects.
func newSurroundings(cluster logicalcluster.Name, roles []*rbacv1.ClusterRole, bindings []*rbacv1.ClusterRoleBinding,
	exports, types bool) *surroundings {
	s := &surroundings{
		cluster: cluster, exports: exports, types: types, bindings: bindings, roles: make(map[string]*rbacv1.ClusterRole, len(roles)),
		named: map[string]bool{},
	}
	for _, role := range roles {
		s.roles[role.Name] = role
	}
	for _, binding := range bindings {
		if bindsConsumers(binding) && refersToClusterRole(binding) {
			s.named[binding.RoleRef.Name] = true
		}
	}
	return s
}

// wordsOfCluster returns why the LogicalCluster of a cluster is offered even if nothing else of it were.
func (s *surroundings) wordsOfCluster() []string {
	var words []string
	if s.exports {
		words = append(words, wordAPIs)
	}
	if s.types {
		words = append(words, wordTenancy)
	}
	return words
}

// wordsOfRole returns why a ClusterRole is offered; nothing if it is not. The rules of an aggregated role are those that it has.
func (s *surroundings) wordsOfRole(role *rbacv1.ClusterRole) []string {
	words := s.wordsOfRules(role.Rules)
	if s.named[role.Name] && !slices.Contains(words, wordAPIs) {
		words = append([]string{wordAPIs}, words...)
	}
	return words
}

// wordsOfBinding returns why a ClusterRoleBinding is offered; nothing if it is not. A role that the cluster does not store, such as
// cluster-admin, is the same on every shard, and qualifies no binding.
func (s *surroundings) wordsOfBinding(binding *rbacv1.ClusterRoleBinding) []string {
	var words []string
	if role, ok := s.roles[binding.RoleRef.Name]; ok && refersToClusterRole(binding) {
		words = s.wordsOfRules(role.Rules)
	}
	if bindsConsumers(binding) && !slices.Contains(words, wordAPIs) {
		words = append([]string{wordAPIs}, words...)
	}
	return words
}

// wordsOfRules returns why other shards need rules.
func (s *surroundings) wordsOfRules(rules []rbacv1.PolicyRule) []string {
	var words []string
	if slices.ContainsFunc(rules, concernsExports) {
		words = append(words, wordAPIs)
	}
	if slices.ContainsFunc(rules, concernsTypes) {
		words = append(words, wordTenancy)
	}
	if (s.exports || s.types) && slices.ContainsFunc(rules, grantsAccess) {
		words = append(words, wordCore)
	}
	return words
}

// concernsExports reports whether a rule allows to bind APIExports, or to use their content.
func concernsExports(rule rbacv1.PolicyRule) bool {
	if !hasAny(rule.APIGroups, apisv1alpha1.SchemeGroupVersion.Group, rbacv1.APIGroupAll) {
		return false
	}
	if hasAny(rule.Resources, "apiexports", rbacv1.ResourceAll) && hasAny(rule.Verbs, "bind", rbacv1.VerbAll) {
		return true
	}
	return hasAny(rule.Resources, "apiexports/content", "*/content") && len(rule.Verbs) > 0
}

// concernsTypes reports whether a rule allows to use WorkspaceTypes, or to be their initializer or terminator.
func concernsTypes(rule rbacv1.PolicyRule) bool {
	return hasAny(rule.APIGroups, tenancyv1alpha1.SchemeGroupVersion.Group, rbacv1.APIGroupAll) &&
		hasAny(rule.Resources, "workspacetypes", rbacv1.ResourceAll) &&
		hasAny(rule.Verbs, "use", "initialize", "terminate", rbacv1.VerbAll)
}

// grantsAccess reports whether a rule allows to enter the workspace.
func grantsAccess(rule rbacv1.PolicyRule) bool {
	return hasAny(rule.NonResourceURLs, "/", "/*", rbacv1.NonResourceAll) && hasAny(rule.Verbs, "access", rbacv1.VerbAll)
}

// bindsConsumers reports whether a binding has a subject that stands for a user or a group of other workspaces.
func bindsConsumers(binding *rbacv1.ClusterRoleBinding) bool {
	return slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool {
		return (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) && strings.HasPrefix(s.Name, authorization.BindingPrefix)
	})
}

func refersToClusterRole(binding *rbacv1.ClusterRoleBinding) bool {
	return binding.RoleRef.Kind == "ClusterRole"
}

func hasAny(values []string, wanted ...string) bool {
	return slices.ContainsFunc(values, func(value string) bool { return slices.Contains(wanted, value) })
}

// isAlways is the rule of kinds of which every object is offered.
func isAlways(object, *surroundings) bool { return true }

// hasExports is the rule of what a provider enforces for its consumers.
func hasExports(_ object, s *surroundings) bool { return s.exports }

// isInRoot is the rule of Shards: those of other clusters mean nothing.
func isInRoot(_ object, s *surroundings) bool { return s.cluster == logicalcluster.Root }

func isRoleWithWords(obj object, s *surroundings) bool {
	role, ok := obj.(*rbacv1.ClusterRole)
	return ok && len(s.wordsOfRole(role)) > 0
}

func isBindingWithWords(obj object, s *surroundings) bool {
	binding, ok := obj.(*rbacv1.ClusterRoleBinding)
	return ok && len(s.wordsOfBinding(binding)) > 0
}

// wordsOf returns the value of ReplicateAnnotation of the copy of an object; nothing if it has none.
func (s *surroundings) wordsOf(obj object) []string {
	switch obj := obj.(type) {
	case *rbacv1.ClusterRole:
		return s.wordsOfRole(obj)
	case *rbacv1.ClusterRoleBinding:
		return s.wordsOfBinding(obj)
	case *corev1alpha1.LogicalCluster:
		if words := s.wordsOfCluster(); len(words) > 0 {
			return words
		}
		return []string{wordCore} // every shard that reads it needs to know where the cluster is
	}
	return nil
}
