package admission

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/singleflight"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/apis/expressions"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/informers/scoped"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// The maximum number of clusters with prepared policies in memory, and of distinct compiled policies, for each kind.
const (
	maxPolicyClusters   = 1024
	maxCompiledPolicies = 4096
)

// object is a policy, a binding of one, or a configuration of webhooks.
type object interface {
	runtime.Object
	metav1.Object
}

// policies evaluates the policies of the cluster of each request with upstream's dispatcher. A cluster without policies has no entry here.
// Equal policies of several clusters are compiled once.
type policies[P object, B object, E any] struct {
	config   Config
	policies informers.Lister[P]
	bindings informers.Lister[B]
	// spec returns the spec of a policy, which identifies it in compiled, and its kind of parameters. policyOf returns the policy of a
	// binding.
	spec     func(P) (spec any, params *admissionregistrationv1.ParamKind)
	policyOf func(B) string
	compile  func(P) E
	dispatch func(logicalcluster.Name, *matching.Matcher) generic.Dispatcher[generic.PolicyHook[P, B, E]]

	building singleflight.Group // by source: a cluster with many policies to compile does not delay the others
	clusters *lru.Cache         // of *clusterPolicies[P, B, E], by source
	compiled *lru.Cache         // of E, by hash of name and spec
}

type clusterPolicies[P object, B object, E any] struct {
	fingerprint [2][sha256.Size]byte
	dispatcher  generic.Dispatcher[generic.PolicyHook[P, B, E]]
	hooks       []generic.PolicyHook[P, B, E]
	// params is true if any of the policies has parameters.
	params bool
}

// each evaluates the policies of every source for a request. They share the budget of the request.
func (p *policies[P, B, E]) each(
	ctx context.Context, a admission.Attributes,
	ask func(context.Context, generic.Dispatcher[generic.PolicyHook[P, B, E]], []generic.PolicyHook[P, B, E]) error,
) error {
	from, err := sources(ctx, p.config, a)
	if err != nil {
		return err
	}
	for _, f := range from {
		found, err := p.of(ctx, f)
		if err != nil {
			return err
		}
		if found == nil {
			continue
		}
		if err := p.ask(ctx, a, found, ask); err != nil {
			return err
		}
	}
	return nil
}

func (p *policies[P, B, E]) ask(
	ctx context.Context, a admission.Attributes, found *clusterPolicies[P, B, E],
	ask func(context.Context, generic.Dispatcher[generic.PolicyHook[P, B, E]], []generic.PolicyHook[P, B, E]) error,
) error {
	defer fairqueue.From(ctx).Compute()()
	ctx = expressions.WithBudget(ctx)
	hooks := found.hooks
	if found.params {
		hooks = slices.Clone(hooks)
		for i := range hooks {
			if params, ok := hooks[i].ParamInformer.(paramInformer); ok {
				hooks[i].ParamInformer = params.of(ctx)
			}
		}
	}
	err := ask(ctx, found.dispatcher, hooks)
	if ctx.Err() != nil {
		return apierrors.NewTimeoutError("the request ended while admission policies were evaluated", 0)
	}
	if spent := expressions.Err(ctx); spent != nil { // also if the failure policy ignores errors
		return forbidden(a, "%w", spent)
	}
	return err
}

// of returns the policies of a source, or nil if it has no policies or no bindings.
func (p *policies[P, B, E]) of(ctx context.Context, from source) (*clusterPolicies[P, B, E], error) {
	policyVersions, anyPolicy, err := fingerprintOf(p.policies)(ctx, from.rules)
	if err != nil || !anyPolicy {
		return nil, err
	}
	bindingVersions, anyBinding, err := fingerprintOf(p.bindings)(ctx, from.rules)
	if err != nil || !anyBinding {
		return nil, err
	}
	fingerprint := [2][sha256.Size]byte{policyVersions, bindingVersions}
	if found, ok := p.ready(from, fingerprint); ok {
		return found, nil
	}
	made, err, _ := p.building.Do(fmt.Sprintf("%s %s %x", from.rules, from.object, fingerprint), func() (any, error) {
		if found, ok := p.ready(from, fingerprint); ok {
			return found, nil
		}
		return p.make(context.WithoutCancel(ctx), from, fingerprint)
	})
	if err != nil {
		return nil, err
	}
	return made.(*clusterPolicies[P, B, E]), nil
}

// ready returns the prepared policies of a source, and whether they have a fingerprint.
func (p *policies[P, B, E]) ready(from source, fingerprint [2][sha256.Size]byte) (*clusterPolicies[P, B, E], bool) {
	found, ok := p.clusters.Get(from)
	if !ok {
		return nil, false
	}
	c := found.(*clusterPolicies[P, B, E])
	return c, c.fingerprint == fingerprint
}

// make compiles the policies of a source.
func (p *policies[P, B, E]) make(ctx context.Context, from source, fingerprint [2][sha256.Size]byte) (*clusterPolicies[P, B, E], error) {
	client, err := p.config.ClientFor(from.object)
	if err != nil {
		return nil, err
	}
	made := &clusterPolicies[P, B, E]{
		fingerprint: fingerprint,
		dispatcher: p.dispatch(from.object,
			matching.NewMatcher(scoped.New(p.config.Set, from.object, from.rules).Core().V1().Namespaces().Lister(), client)),
	}
	if made.hooks, err = p.hooks(logicalcluster.WithName(ctx, from.rules), from.rules); err != nil {
		return nil, err
	}
	made.params = slices.ContainsFunc(made.hooks, func(h generic.PolicyHook[P, B, E]) bool { return h.ParamInformer != nil })
	p.clusters.Add(from, made)
	return made, nil
}

// hooks returns the policies of a cluster that have bindings, with those, ordered by name.
func (p *policies[P, B, E]) hooks(ctx context.Context, cluster logicalcluster.Name) ([]generic.PolicyHook[P, B, E], error) {
	all, err := p.policies.List(cluster)
	if err != nil {
		return nil, err
	}
	bindings, err := p.bindings.List(cluster)
	if err != nil {
		return nil, err
	}
	if most := max(len(all), len(bindings)); most > maxPolicies {
		return nil, apierrors.NewForbidden(schema.GroupResource{Group: "core.kcp.io", Resource: "logicalclusters"}, string(cluster),
			fmt.Errorf("it has %d admission policies or bindings of one kind, the limit is %d: delete unneeded ones", most, maxPolicies))
	}
	slices.SortFunc(all, func(a, b P) int { return strings.Compare(a.GetName(), b.GetName()) })
	slices.SortFunc(bindings, func(a, b B) int { return strings.Compare(a.GetName(), b.GetName()) })
	bound := map[string][]B{}
	for _, binding := range bindings {
		bound[p.policyOf(binding)] = append(bound[p.policyOf(binding)], binding)
	}
	var hooks []generic.PolicyHook[P, B, E]
	for _, policy := range all {
		hook := generic.PolicyHook[P, B, E]{Policy: policy, Bindings: bound[policy.GetName()]}
		if len(hook.Bindings) == 0 {
			continue
		}
		spec, params := p.spec(policy)
		if hook.Evaluator, err = p.evaluator(policy, spec); err != nil {
			return nil, err
		}
		if params != nil {
			hook.ParamInformer, hook.ParamScope, hook.ConfigurationError = p.params(ctx, cluster, params)
		}
		hooks = append(hooks, hook)
	}
	return hooks, nil
}

// evaluator returns the compiled form of a policy, or of an equal one.
func (p *policies[P, B, E]) evaluator(policy P, spec any) (E, error) {
	var none E
	content, err := json.Marshal([]any{policy.GetName(), spec})
	if err != nil {
		return none, fmt.Errorf("encoding admission policy %s: %w", policy.GetName(), err)
	}
	key := sha256.Sum256(content)
	if found, ok := p.compiled.Get(key); ok {
		return found.(E), nil
	}
	e := p.compile(policy)
	p.compiled.Add(key, e)
	return e, nil
}

// params returns the informer that reads the parameters of a policy, and their scope.
func (p *policies[P, B, E]) params(ctx context.Context, cluster logicalcluster.Name,
	kind *admissionregistrationv1.ParamKind) (paramInformer, meta.RESTScope, error) {
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return paramInformer{}, nil, err
	}
	mapper, err := p.config.currentMapper(ctx)
	if err != nil {
		return paramInformer{}, nil, err
	}
	mapping, err := mapper.RESTMapping(gv.WithKind(kind.Kind).GroupKind(), gv.Version)
	if err != nil {
		return paramInformer{}, nil, fmt.Errorf("failed to find resource referenced by paramKind: '%s'", gv.WithKind(kind.Kind))
	}
	return paramInformer{client: p.config.Dynamic, cluster: cluster, resource: mapping.Resource}, mapping.Scope, nil
}
