package authorization

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbacvalidation "k8s.io/kubernetes/pkg/registry/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Rules resolves the permissions of users in the logical cluster of a context: the rules of the bootstrap policy and
// of the cluster, for every effective identity. Authorization, access reviews and checks against escalation use it.
type Rules struct {
	bootstrap, local rbacvalidation.AuthorizationRuleResolver
	policy           localPolicy
	lanes            *lanes
}

var (
	_ rbacvalidation.AuthorizationRuleResolver = &Rules{}
	_ authorizer.UnconditionalAuthorizer       = &Rules{}
)

// NewRules returns rules over the roles and bindings of set.
func NewRules(set *informers.Set) *Rules {
	bootstrap := newBootstrapPolicy()
	local := localPolicy{set: set, bootstrap: bootstrap}
	return &Rules{
		bootstrap: rbacvalidation.NewDefaultRuleResolver(bootstrap, bootstrap, bootstrap, bootstrap),
		local:     rbacvalidation.NewDefaultRuleResolver(local, local, local, local),
		policy:    local,
		lanes:     newLanes(),
	}
}

// GetRoleReferenceRules returns the rules of a role to which a binding in the context's cluster refers, for the check against
// escalation.
func (r *Rules) GetRoleReferenceRules(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	rules, err := r.local.GetRoleReferenceRules(ctx, ref, namespace)
	if err != nil {
		return nil, err
	}
	if err := CheckCombinations(rules); err != nil {
		return nil, fmt.Errorf("granting %s %q: %w", ref.Kind, ref.Name, err)
	}
	return rules, nil
}

// RulesFor returns the rules that apply to u in a namespace of the context's cluster, and an error if the list is
// incomplete.
func (r *Rules) RulesFor(ctx context.Context, u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	var errs []error
	r.VisitRulesFor(ctx, u, namespace, func(_ fmt.Stringer, rule *rbacv1.PolicyRule, err error) bool {
		if rule != nil && len(rules) == maxRulesOfUser {
			errs = append(errs, fmt.Errorf("more than %d rules apply to the user", maxRulesOfUser))
			return false
		}
		if rule != nil {
			rules = append(rules, *rule)
		}
		if err != nil && len(errs) < maxErrors {
			errs = append(errs, err)
		}
		return true
	})
	return rules, utilerrors.NewAggregate(errs)
}

// VisitRulesFor calls visit for every rule that applies to u, and for every error, until visit returns false.
func (r *Rules) VisitRulesFor(ctx context.Context, u user.Info, namespace string,
	visit func(fmt.Stringer, *rbacv1.PolicyRule, error) bool) {
	r.visitRules(ctx, u, namespace, visit, r.bootstrap, r.local)
}

func (r *Rules) visitRules(ctx context.Context, u user.Info, namespace string, visit func(fmt.Stringer, *rbacv1.PolicyRule, error) bool,
	policies ...rbacvalidation.AuthorizationRuleResolver) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		visit(nil, nil, err)
		return
	}
	e := &evaluation{Context: ctx, cluster: cluster, lanes: r.lanes}
	defer e.end()
	more := true
	once := func(source fmt.Stringer, rule *rbacv1.PolicyRule, err error) bool {
		more = (rule == nil || e.spend(weightOf(rule))) && visit(source, rule, err)
		return more
	}
	for _, identity := range EffectiveIdentities(u, cluster) {
		for _, policy := range policies {
			policy.VisitRulesFor(e, identity, namespace, once)
			if e.err != nil {
				visit(nil, nil, e.err)
				return
			}
			if !more {
				return
			}
		}
	}
	if e.cut {
		visit(nil, nil, errTooMuchRBAC)
	}
}

// maxErrors limits the errors in the reason of a decision, such as roles that do not exist.
const maxErrors = 10

// Authorize allows requests that a rule allows, and has no opinion on others.
func (r *Rules) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return r.authorize(ctx, a, r.bootstrap, r.local)
}

func (r *Rules) authorize(ctx context.Context, a authorizer.Attributes,
	policies ...rbacvalidation.AuthorizationRuleResolver) (authorizer.Decision, string, error) {
	var reason string
	var errs []error
	r.visitRules(ctx, a.GetUser(), a.GetNamespace(), func(source fmt.Stringer, rule *rbacv1.PolicyRule, err error) bool {
		if err != nil && len(errs) < maxErrors {
			errs = append(errs, err)
		}
		if rule == nil || !rbac.RuleAllows(a, rule) {
			return true
		}
		reason = "RBAC: allowed by " + source.String()
		return false
	}, policies...)
	switch {
	case reason != "":
		return authorizer.DecisionAllow, reason, nil
	case len(errs) > 0:
		return authorizer.DecisionNoOpinion, fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(errs)), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// Resolver lists rules in the form of SelfSubjectRulesReviews.
type Resolver struct{ *Rules }

// RulesFor implements authorizer.RuleResolver.
func (r Resolver) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo,
	[]authorizer.NonResourceRuleInfo, bool, error) {
	rules, err := r.Rules.RulesFor(ctx, u, namespace)
	var resources []authorizer.ResourceRuleInfo
	var nonResources []authorizer.NonResourceRuleInfo
	for _, rule := range rules {
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			nonResources = append(nonResources, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
	}
	return resources, nonResources, false, err
}
