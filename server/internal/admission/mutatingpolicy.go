package admission

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/lru"

	bounded "github.com/kcplane/kcp/server/internal/apis/expressions"
	"github.com/kcplane/kcp/server/logicalcluster"
)

type mutatingPolicies struct {
	*admission.Handler
	policies policies[*mutating.Policy, *mutating.PolicyBinding, mutating.PolicyEvaluator]
}

var _ admission.MutationInterface = &mutatingPolicies{}

func newMutatingPolicies(config Config) *mutatingPolicies {
	p := &mutatingPolicies{Handler: handles(admission.Connect, admission.Create, admission.Update)}
	p.policies = policies[*mutating.Policy, *mutating.PolicyBinding, mutating.PolicyEvaluator]{
		config: config, policies: config.Set.MutatingAdmissionPolicies, bindings: config.Set.MutatingAdmissionPolicyBindings,
		spec: func(policy *mutating.Policy) (any, *admissionregistrationv1.ParamKind) {
			return policy.Spec, policy.Spec.ParamKind
		},
		policyOf: func(b *mutating.PolicyBinding) string { return b.Spec.PolicyName },
		compile:  compileMutation,
		dispatch: func(cluster logicalcluster.Name, m *matching.Matcher) generic.Dispatcher[mutating.PolicyHook] {
			return mutating.NewDispatcher(config.Authorizer, m, clusterConverters{cluster: cluster, of: config.TypeConverter})
		},
		clusters: lru.New(maxPolicyClusters), compiled: lru.New(maxCompiledPolicies),
	}
	return p
}

// Admit implements admission.MutationInterface.
func (p *mutatingPolicies) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if isReview(a) || isPolicy(a) {
		return nil
	}
	return p.policies.each(ctx, a, func(ctx context.Context, d generic.Dispatcher[mutating.PolicyHook], hooks []mutating.PolicyHook) error {
		return withProtection(a, func() error { return d.Dispatch(ctx, a, o, hooks) })
	})
}

// clusterConverters returns the type converters of one cluster.
type clusterConverters struct {
	cluster logicalcluster.Name
	of      func(logicalcluster.Name, schema.GroupVersionKind) managedfields.TypeConverter
}

var _ patch.TypeConverterManager = clusterConverters{}

// GetTypeConverter implements patch.TypeConverterManager.
func (c clusterConverters) GetTypeConverter(gvk schema.GroupVersionKind) managedfields.TypeConverter {
	return c.of(c.cluster, gvk)
}

// Run implements patch.TypeConverterManager. Converters need no refresh.
func (clusterConverters) Run(context.Context) {}

// compileMutation returns the evaluator of a policy. If the policy does not compile, every evaluation returns the error.
func compileMutation(policy *mutating.Policy) mutating.PolicyEvaluator {
	spec := &policy.Spec
	compiler, err := bounded.NewCompiler()
	if err == nil {
		err = bounded.CheckAll(spec)
	}
	if err != nil {
		return mutating.PolicyEvaluator{Error: &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: err.Error()}}
	}
	options := cel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}
	compileVariables(compiler, spec.Variables, options)
	evaluator := mutating.PolicyEvaluator{
		Matcher: compileMatcher(compiler, policy.Name, spec.MatchConditions, spec.FailurePolicy, options), CompositedCompiler: compiler,
	}
	options.HasPatchTypes = true
	for _, m := range spec.Mutations {
		switch {
		case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			compiled := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, options,
				environment.StoredExpressions)
			evaluator.Mutators = append(evaluator.Mutators, boundedPatcher{patch.NewJSONPatcher(compiled)})
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			compiled := compiler.CompileMutatingEvaluator(&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}, options,
				environment.StoredExpressions)
			evaluator.Mutators = append(evaluator.Mutators, boundedPatcher{patch.NewApplyConfigurationPatcher(compiled)})
		}
	}
	return evaluator
}

// boundedPatcher applies mutations within the budget of the request, and bounds the size of the resulting objects.
type boundedPatcher struct{ patch.Patcher }

// patchCost is the cost of applying a mutation, in addition to one for every two bytes of the object.
const patchCost = 1000

// Patch implements patch.Patcher.
func (p boundedPatcher) Patch(ctx context.Context, r patch.Request, budget int64) (runtime.Object, error) {
	if err := bounded.Spend(ctx, patchCost+uint64(encodedSize(r.VersionedAttributes.VersionedObject.Object()))/2); err != nil {
		return nil, err
	}
	patched, err := p.Patcher.Patch(ctx, r, budget)
	if err != nil {
		return nil, err
	}
	if size := encodedSize(patched); size > int(bounded.MaxMutation) {
		return nil, fmt.Errorf("the mutation makes the object %d bytes long, the limit is %d bytes", size, bounded.MaxMutation)
	}
	return patched, nil
}
