package admission

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/server/internal/apis/expressions"
)

// stored is a client of a cluster that has a number of parameters of a size. It counts the parameters that it has returned.
type stored struct {
	dynamic.NamespaceableResourceInterface
	params, size, read int
}

func (s *stored) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return s
}
func (s *stored) Namespace(string) dynamic.ResourceInterface { return s }

func (s *stored) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	s.read++
	return &unstructured.Unstructured{Object: map[string]any{"name": name, "data": strings.Repeat("x", s.size)}}, ctx.Err()
}

func (s *stored) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	first, _ := strconv.Atoi(options.Continue)
	next := min(s.params, first+int(options.Limit))
	for i := first; i < next; i++ {
		param, _ := s.Get(ctx, strconv.Itoa(i), metav1.GetOptions{})
		list.Items = append(list.Items, *param)
	}
	if next < s.params {
		list.SetContinue(strconv.Itoa(next))
	}
	return list, ctx.Err()
}

func TestParametersAreReadWithinTheBudgetOfTheirRequest(t *testing.T) {
	for name, test := range map[string]struct {
		params, size, most int
		want               string
	}{
		"no parameters are read":                     {0, 0, 0, ""},
		"as many parameters as the limit are read":   {maxParams, 100, maxParams, ""},
		"more parameters than the limit are refused": {maxParams + 1, 100, maxParams, "selects more than 500 objects"},
		"parameters beyond the budget are refused":   {maxParams, 1 << 20, 30, "may cost at most"},
	} {
		s := &stored{params: test.params, size: test.size}
		ctx := expressions.WithBudget(t.Context())
		params, err := paramInformer{client: s, cluster: "a"}.of(ctx).Lister().List(labels.Everything())
		switch {
		case test.want == "" && (err != nil || len(params) != test.params):
			t.Errorf("%s: %d, %v", name, len(params), err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v", name, err)
		}
		if s.read > test.most {
			t.Errorf("%s: %d are read", name, s.read)
		}
	}
	ctx, end := context.WithCancel(expressions.WithBudget(t.Context()))
	one := paramInformer{client: &stored{params: 1}, cluster: "a"}.of(ctx).Lister()
	if _, err := one.Get("0"); err != nil {
		t.Error(err)
	}
	end()
	if _, err := one.Get("0"); err == nil {
		t.Error("a parameter was read for a request that has ended")
	}
}

// A policy may ignore errors, but a request whose budget is spent was not checked by the other policies.
func TestARequestThatSpendsItsBudgetIsRefused(t *testing.T) {
	type hook = generic.PolicyHook[*policy, *binding, string]
	p := &policies[*policy, *binding, string]{}
	thing := schema.GroupVersion{Group: "example.com", Version: "v1"}
	a := admission.NewAttributesRecord(nil, nil, thing.WithKind("Thing"), "", "one", thing.WithResource("things"), "", admission.Delete, nil, false, nil)
	ask := func(ctx context.Context, cost uint64, result error) error {
		return p.ask(ctx, a, &clusterPolicies[*policy, *binding, string]{}, func(ctx context.Context, _ generic.Dispatcher[hook], _ []hook) error {
			_ = expressions.Spend(ctx, cost)
			return result
		})
	}
	denied := fmt.Errorf("denied by a policy")
	if err := ask(t.Context(), 1000, nil); err != nil {
		t.Error(err)
	}
	if err := ask(t.Context(), 1000, denied); err != denied { //nolint:errorlint // it is the same
		t.Error(err)
	}
	for _, result := range []error{nil, denied} {
		if err := ask(t.Context(), 1<<40, result); err == nil || !strings.HasPrefix(err.Error(), `things.example.com "one" is forbidden: admission policies, with all their bindings and parameters, may `) {
			t.Errorf("got %v", err)
		}
	}
	request := expressions.WithBudget(t.Context())
	if err := ask(request, 6_000_000, nil); err != nil {
		t.Error(err)
	}
	if err := ask(request, 6_000_000, nil); err == nil {
		t.Error("the policies of the provider have another budget")
	}
}

// makes is a mutation whose result has a number of bytes.
type makes int

func (g makes) Patch(_ context.Context, _ patch.Request, _ int64) (runtime.Object, error) {
	return &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("x", int(g))}}, nil
}

func TestMutationsSpendTheBudgetAndMakeBoundedObjects(t *testing.T) {
	a := &admission.VersionedAttributes{}
	a.VersionedObject.Set(&corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("x", 1<<20)}})
	r := patch.Request{VersionedAttributes: a}
	ctx := expressions.WithBudget(t.Context())
	n := 0
	for ; expressions.Err(ctx) == nil; n++ {
		if _, err := (boundedPatcher{makes(1000)}).Patch(ctx, r, 0); err != nil && expressions.Err(ctx) == nil {
			t.Fatal(err)
		}
	}
	if n < 15 || n > 20 {
		t.Errorf("%d mutations of an object of a megabyte are applied", n)
	}
	_, err := (boundedPatcher{makes(4 << 20)}).Patch(expressions.WithBudget(t.Context()), r, 0)
	if err == nil || !strings.Contains(err.Error(), "the limit is 3145728 bytes") {
		t.Errorf("an object of four megabytes: %v", err)
	}
}
