package admission

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/lru"

	bounded "github.com/kcplane/kcp/server/internal/apis/expressions"
	"github.com/kcplane/kcp/server/logicalcluster"
)

type validatingPolicies struct {
	*admission.Handler
	policies policies[*validating.Policy, *validating.PolicyBinding, validating.Validator]
}

var _ admission.ValidationInterface = &validatingPolicies{}

func newValidatingPolicies(config Config) *validatingPolicies {
	p := &validatingPolicies{Handler: handles(admission.Connect, admission.Create, admission.Delete, admission.Update)}
	p.policies = policies[*validating.Policy, *validating.PolicyBinding, validating.Validator]{
		config: config, policies: config.Set.ValidatingAdmissionPolicies, bindings: config.Set.ValidatingAdmissionPolicyBindings,
		spec: func(policy *validating.Policy) (any, *admissionregistrationv1.ParamKind) {
			return policy.Spec, policy.Spec.ParamKind
		},
		policyOf: func(b *validating.PolicyBinding) string { return b.Spec.PolicyName },
		compile:  compileValidation,
		dispatch: func(_ logicalcluster.Name, m *matching.Matcher) generic.Dispatcher[validating.PolicyHook] {
			return validating.NewDispatcher(config.Authorizer, generic.NewPolicyMatcher(m))
		},
		clusters: lru.New(maxPolicyClusters), compiled: lru.New(maxCompiledPolicies),
	}
	return p
}

// Validate implements admission.ValidationInterface.
func (p *validatingPolicies) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if isReview(a) || isPolicy(a) {
		return nil
	}
	return p.policies.each(ctx, a,
		func(ctx context.Context, d generic.Dispatcher[validating.PolicyHook], hooks []validating.PolicyHook) error {
			return d.Dispatch(ctx, a, o, hooks)
		})
}

// isPolicy reports whether the object of a request is a policy or a binding. Policies do not apply to these, as in upstream: otherwise a
// policy could refuse its own correction.
func isPolicy(a admission.Attributes) bool {
	if a.GetResource().Group != admissionregistrationv1.GroupName {
		return false
	}
	switch a.GetResource().Resource {
	case "validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings":
		return true
	}
	return false
}

// compileValidation returns the evaluator of a policy. If the policy does not compile, every evaluation returns the error.
func compileValidation(policy *validating.Policy) validating.Validator {
	spec := &policy.Spec
	compiler, err := bounded.NewCompiler()
	if err == nil {
		err = bounded.CheckAll(spec)
	}
	if err != nil {
		return validating.NewValidator(nil, nil, nil, nil, spec.FailurePolicy, err)
	}
	withAuthorizer := cel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}
	compileVariables(compiler, spec.Variables, withAuthorizer)

	validations := make([]cel.ExpressionAccessor, len(spec.Validations))
	messages := make([]cel.ExpressionAccessor, len(spec.Validations))
	for i, v := range spec.Validations {
		validations[i] = &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		if v.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	audits := make([]cel.ExpressionAccessor, len(spec.AuditAnnotations))
	for i, a := range spec.AuditAnnotations {
		audits[i] = &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}
	}
	withoutAuthorizer := cel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil}
	return validating.NewValidator(
		compiler.CompileCondition(validations, withAuthorizer, environment.StoredExpressions),
		compileMatcher(compiler, policy.Name, spec.MatchConditions, spec.FailurePolicy, withAuthorizer),
		compiler.CompileCondition(audits, withAuthorizer, environment.StoredExpressions),
		compiler.CompileCondition(messages, withoutAuthorizer, environment.StoredExpressions),
		spec.FailurePolicy, nil)
}

func compileVariables(compiler *cel.CompositedCompiler, variables []admissionregistrationv1.Variable,
	options cel.OptionalVariableDeclarations) {
	named := make([]cel.NamedExpressionAccessor, len(variables))
	for i, v := range variables {
		named[i] = &validating.Variable{Name: v.Name, Expression: v.Expression}
	}
	compiler.CompileAndStoreVariables(named, options, environment.StoredExpressions)
}

func compileMatcher(
	compiler *cel.CompositedCompiler, policy string, conditions []admissionregistrationv1.MatchCondition,
	failure *admissionregistrationv1.FailurePolicyType, options cel.OptionalVariableDeclarations,
) matchconditions.Matcher {
	if len(conditions) == 0 {
		return nil
	}
	expressions := make([]cel.ExpressionAccessor, len(conditions))
	for i := range conditions {
		expressions[i] = (*matchconditions.MatchCondition)(&conditions[i])
	}
	return matchconditions.NewMatcher(compiler.CompileCondition(expressions, options, environment.StoredExpressions), failure,
		"policy", "validate", policy)
}
