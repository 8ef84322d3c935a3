package admission

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

type (
	policy  = admissionregistrationv1.ValidatingAdmissionPolicy
	binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
)

// of returns the metadata of an object that has the name of its cluster.
func of(cluster string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: cluster, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}}
}

// A tenant with policies that take long to compile must not delay the writes of other tenants.
func TestCompilingPoliciesDelaysTheirClusterOnly(t *testing.T) {
	group := admissionregistrationv1.SchemeGroupVersion
	set := &informers.Set{}
	set.ValidatingAdmissionPolicies.Informer = informers.New(group.WithResource("validatingadmissionpolicies"), &policy{}, &cache.ListWatch{}, nil)
	set.ValidatingAdmissionPolicyBindings.Informer = informers.New(group.WithResource("validatingadmissionpolicybindings"), &binding{}, &cache.ListWatch{}, nil)
	for _, cluster := range []string{"slow", "quick"} {
		bound := &binding{ObjectMeta: of(cluster), Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: cluster}}
		if err := set.ValidatingAdmissionPolicies.Indexer().Add(&policy{ObjectMeta: of(cluster)}); err != nil {
			t.Fatal(err)
		}
		if err := set.ValidatingAdmissionPolicyBindings.Indexer().Add(bound); err != nil {
			t.Fatal(err)
		}
	}
	compiling, release := make(chan struct{}), make(chan struct{})
	p := &policies[*policy, *binding, string]{
		config:   Config{Set: set, ClientFor: func(logicalcluster.Name) (kubernetes.Interface, error) { return nil, nil }},
		policies: set.ValidatingAdmissionPolicies, bindings: set.ValidatingAdmissionPolicyBindings,
		spec:     func(p *policy) (any, *admissionregistrationv1.ParamKind) { return p.Spec, nil },
		policyOf: func(b *binding) string { return b.Spec.PolicyName },
		compile: func(p *policy) string {
			if p.Name == "slow" {
				close(compiling)
				<-release
			}
			return p.Name
		},
		dispatch: func(logicalcluster.Name, *matching.Matcher) generic.Dispatcher[generic.PolicyHook[*policy, *binding, string]] {
			return nil
		},
		clusters: lru.New(10), compiled: lru.New(10),
	}
	slow := make(chan int)
	go func() {
		found, err := p.of(t.Context(), source{rules: "slow", object: "slow"})
		if err != nil {
			t.Error(err)
		}
		slow <- len(found.hooks)
	}()
	<-compiling
	found, err := p.of(t.Context(), source{rules: "quick", object: "quick"})
	if err != nil || len(found.hooks) != 1 || found.hooks[0].Evaluator != "quick" {
		t.Errorf("while another cluster compiles: %v, %v", found, err)
	}
	close(release)
	if n := <-slow; n != 1 {
		t.Errorf("the slow cluster has %d policies", n)
	}
}
