package admission

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacinternal "k8s.io/kubernetes/pkg/apis/rbac/v1"
	rbacregistry "k8s.io/kubernetes/pkg/registry/rbac"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
)

// roleCombinations refuses roles whose comparison with the permissions of the user who writes them would take too much time and memory. It
// is a mutating plugin that changes nothing: upstream compares them before it calls validating plugins.
type roleCombinations struct{ rules }

var _ admission.MutationInterface = roleCombinations{}

// Admit implements admission.MutationInterface.
func (c roleCombinations) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	var of []rbac.PolicyRule
	switch role := a.GetObject().(type) {
	case *rbac.ClusterRole:
		of = role.Rules
	case *rbac.Role:
		of = role.Rules
	}
	rules := make([]rbacv1.PolicyRule, len(of))
	for i := range of {
		if err := rbacinternal.Convert_rbac_PolicyRule_To_v1_PolicyRule(&of[i], &rules[i], nil); err != nil {
			return err
		}
	}
	err := authorization.CheckCombinations(rules)
	if err == nil || rbacregistry.EscalationAllowed(ctx) || rbacregistry.RoleEscalationAuthorized(ctx, c.config.Authorizer) {
		return nil
	}
	return forbidden(a, "%v", err)
}
