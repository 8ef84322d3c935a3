package admission

import (
	"context"
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// boundWidgets returns a binding of the cluster team that has bound widgets.example.org of a provider.
func boundWidgets(provider string) *apisv1alpha2.APIBinding {
	b := bindingTo("widgets", "widgets")
	b.Status.APIExportClusterName = provider
	b.Status.BoundResources = []apisv1alpha2.BoundAPIResource{{Group: "example.org", Resource: "widgets"}}
	return b
}

func TestRulesComeFromTheClusterAndTheProvider(t *testing.T) {
	for name, test := range map[string]struct {
		objects     []objecttest.Object
		group, kind string
		want        []source
	}{
		"a resource of the cluster has the rules of the cluster":              {nil, "example.org", "Widget", []source{{"team", "team"}}},
		"a bound resource has those of the provider too, last":                {[]objecttest.Object{boundWidgets("provider")}, "example.org", "Widget", []source{{"team", "team"}, {"provider", "team"}}},
		"another resource of the group does not":                              {[]objecttest.Object{boundWidgets("provider")}, "example.org", "Gadget", []source{{"team", "team"}}},
		"a resource that a cluster binds from itself has the rules once":      {[]objecttest.Object{boundWidgets("team")}, "example.org", "Widget", []source{{"team", "team"}}},
		"a resource of the server has the rules of root, which exports it":    {[]objecttest.Object{export("root", "tenancy.kcp.io")}, "tenancy.kcp.io", "Workspace", []source{{"team", "team"}, {"root", "team"}}},
		"a resource of the server without an export has those of the cluster": {nil, "tenancy.kcp.io", "Workspace", []source{{"team", "team"}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := write{group: test.group, object: `metadata: {namespace: default}`}.attributes(t, test.kind)
			got, err := sources(in(t, "team"), newConfig(t, nil, test.objects...), a)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
	if _, err := sources(t.Context(), newConfig(t, nil), write{object: `{}`}.attributes(t, "Widget")); err == nil {
		t.Error("a request without a cluster has sources")
	}
}

func TestPoliciesWithBindingsApply(t *testing.T) {
	type hook = generic.PolicyHook[*policy, *binding, string]
	policyIn := func(cluster, name string) *policy {
		return objecttest.In(cluster, &policy{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	bindingIn := func(cluster, name, policyName string) *binding {
		return objecttest.In(cluster, &binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policyName}})
	}
	var many []objecttest.Object
	for i := range maxPolicies + 1 {
		many = append(many, policyIn("team", fmt.Sprint("policy-", i)))
	}
	for name, test := range map[string]struct {
		objects []objecttest.Object
		want    []string // <policy>: <bindings>
		refused string
	}{
		"a cluster without policies has none":               {nil, nil, ""},
		"a policy without bindings does not apply":          {[]objecttest.Object{policyIn("team", "a"), policyIn("team", "b"), bindingIn("team", "x", "b")}, []string{"b: [x]"}, ""},
		"a binding without its policy does not apply":       {[]objecttest.Object{bindingIn("team", "x", "a")}, nil, ""},
		"a binding in another cluster does not apply":       {[]objecttest.Object{policyIn("team", "a"), bindingIn("root", "x", "a")}, nil, ""},
		"policies and their bindings are ordered by name":   {[]objecttest.Object{policyIn("team", "b"), policyIn("team", "a"), bindingIn("team", "z", "a"), bindingIn("team", "y", "a"), bindingIn("team", "x", "b")}, []string{"a: [y z]", "b: [x]"}, ""},
		"policies of the provider follow":                   {[]objecttest.Object{boundWidgets("provider"), policyIn("team", "b"), bindingIn("team", "x", "b"), policyIn("provider", "a"), bindingIn("provider", "x", "a")}, []string{"b: [x]", "a: [x]"}, ""},
		"policies of a provider of nothing bound are left":  {[]objecttest.Object{policyIn("provider", "a"), bindingIn("provider", "x", "a")}, nil, ""},
		"a cluster with too many policies refuses requests": {append(many, bindingIn("team", "x", "policy-1")), nil, `403 Forbidden: logicalclusters.core.kcp.io "team" is forbidden: it has 1001 admission policies or bindings of one kind, the limit is 1000: delete unneeded ones`},
	} {
		t.Run(name, func(t *testing.T) {
			config := newConfig(t, nil, test.objects...)
			config.ClientFor = func(logicalcluster.Name) (kubernetes.Interface, error) { return nil, nil }
			p := &policies[*policy, *binding, string]{
				config: config, policies: config.Set.ValidatingAdmissionPolicies, bindings: config.Set.ValidatingAdmissionPolicyBindings,
				spec:     func(p *policy) (any, *admissionregistrationv1.ParamKind) { return p.Spec, p.Spec.ParamKind },
				policyOf: func(b *binding) string { return b.Spec.PolicyName },
				compile:  func(p *policy) string { return p.Name },
				dispatch: func(logicalcluster.Name, *matching.Matcher) generic.Dispatcher[hook] { return nil },
				clusters: lru.New(10), compiled: lru.New(10),
			}
			a := write{group: "example.org", object: `{}`}.attributes(t, "Widget")
			var got []string
			err := p.each(in(t, "team"), a, func(_ context.Context, _ generic.Dispatcher[hook], hooks []hook) error {
				for _, h := range hooks {
					var names []string
					for _, b := range h.Bindings {
						names = append(names, b.Name)
					}
					got = append(got, fmt.Sprintf("%s: %v", h.Evaluator, names))
				}
				return nil
			})
			wantOutcome(t, a, err, test.refused)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestPoliciesDoNotApplyToPoliciesAndReviews(t *testing.T) {
	for name, test := range map[string]struct {
		group, kind string
		want        bool
	}{
		"a policy is exempt":                        {"admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", true},
		"a binding of a mutating policy is exempt":  {"admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", true},
		"a configuration of webhooks is not exempt": {"admissionregistration.k8s.io", "ValidatingWebhookConfiguration", false},
		"the kind in another group is not exempt":   {"example.org", "ValidatingAdmissionPolicyBinding", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isPolicy(write{group: test.group, object: `{}`}.attributes(t, test.kind)); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
	// Neither plugin reads the cluster of an exempt request, which has none here.
	for _, a := range []admission.Attributes{
		write{group: "admissionregistration.k8s.io", object: `{}`}.attributes(t, "MutatingAdmissionPolicyBinding"),
		write{group: "authorization.k8s.io", object: `{}`}.attributes(t, "SubjectAccessReview"),
	} {
		config := newConfig(t, nil)
		if err := newValidatingPolicies(config).Validate(t.Context(), a, nil); err != nil {
			t.Errorf("validating policies apply to %s: %v", a.GetKind(), err)
		}
		if err := newMutatingPolicies(config).Admit(t.Context(), a, nil); err != nil {
			t.Errorf("mutating policies apply to %s: %v", a.GetKind(), err)
		}
	}
}
