package expressions

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// condition is an expression of a policy, or a variable of one.
type condition struct{ name, expression string }

func (c condition) GetName() string          { return c.name }
func (c condition) GetExpression() string    { return c.expression }
func (c condition) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType} }

func newCompiler(t *testing.T) *admissioncel.CompositedCompiler {
	t.Helper()
	c, err := NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// about returns attributes of a request for an object with a list of numbers.
func about(numbers int) *admission.VersionedAttributes {
	list := make([]any, numbers)
	for i := range list {
		list[i] = int64(i)
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	object := &unstructured.Unstructured{Object: map[string]any{"list": list, "deep": map[string]any{"list": list}}}
	object.SetGroupVersionKind(kind)
	a := &admission.VersionedAttributes{
		Attributes:    admission.NewAttributesRecord(object, nil, kind, "", "", kind.GroupVersion().WithResource("things"), "", admission.Create, &metav1.CreateOptions{}, false, nil),
		VersionedKind: kind,
	}
	a.VersionedObject.Set(object)
	return a
}

// evaluate evaluates conditions like upstream for one binding.
func evaluate(ctx context.Context, c admissioncel.ConditionEvaluator, a *admission.VersionedAttributes) ([]admissioncel.EvaluationResult, error) {
	results, _, err := c.ForInput(ctx, a, nil, admissioncel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
	return results, err
}

const loops = `object.list.all(a, object.list.all(b, object.list.all(c, a + b + c >= 0)))`

func TestPoliciesOfOneRequestShareABudget(t *testing.T) {
	c := newCompiler(t).CompileCondition([]admissioncel.ExpressionAccessor{condition{expression: loops}}, admissioncel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	a := about(35)
	ctx := WithBudget(t.Context())
	if WithBudget(ctx) != ctx {
		t.Error("a request has two budgets")
	}
	budgetOf(ctx).cost.Store(maxCost - 2_000_000) // of other policies
	n := 0
	for ; Err(ctx) == nil && n < 1000; n++ {
		if results, err := evaluate(ctx, c, a); err != nil || results[0].Error != nil {
			t.Fatalf("evaluation %d: %v, %v", n, results, err)
		}
	}
	if n != 2_000_000/393_638+1 {
		t.Errorf("the budget is enough for %d evaluations", n)
	}
	if err := Err(ctx); err == nil || !strings.Contains(err.Error(), "may cost at most 10000000 CEL cost units") {
		t.Errorf("the budget is spent: %v", err)
	}
	if _, err := evaluate(ctx, c, a); err == nil {
		t.Error("an expression was evaluated after the budget was spent")
	}
	if _, err := evaluate(WithBudget(t.Context()), c, a); err != nil {
		t.Errorf("the budget of another request: %v", err)
	}
}

// Upstream adds the cost of variables after it has evaluated all variables of an expression.
func TestVariablesSpendTheBudgetOneByOne(t *testing.T) {
	compiler := newCompiler(t)
	var all []string
	var variables []admissioncel.NamedExpressionAccessor
	for i := range 100 {
		name := fmt.Sprintf("v%d", i)
		variables = append(variables, condition{name, loops})
		all = append(all, "variables."+name)
	}
	compiler.CompileAndStoreVariables(variables, admissioncel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	c := compiler.CompileCondition([]admissioncel.ExpressionAccessor{condition{expression: strings.Join(all, " && ")}}, admissioncel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	ctx := WithBudget(t.Context())
	budgetOf(ctx).cost.Store(maxCost - 2_000_000)
	if results, err := evaluate(ctx, c, about(35)); (err == nil && results[0].Error == nil) || Err(ctx) == nil {
		t.Errorf("a hundred variables are evaluated: %v, %v", results, err)
	}
	if cost := budgetOf(ctx).cost.Load(); cost < maxCost || cost > maxCost+celconfig.PerCallLimit {
		t.Errorf("the variables cost %d", cost)
	}
}

func TestEvaluationStopsAtTheTimeLimit(t *testing.T) {
	c := newCompiler(t).CompileCondition([]admissioncel.ExpressionAccessor{condition{expression: loops}}, admissioncel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	ctx := WithBudget(t.Context())
	budgetOf(ctx).took.Store(int64(maxTime - time.Millisecond))
	if results, err := evaluate(ctx, c, about(100)); err == nil && results[0].Error == nil {
		t.Errorf("a million steps are evaluated in a millisecond: %v", results)
	}
	if err := Err(ctx); err == nil || !strings.Contains(err.Error(), "may take at most 10s") {
		t.Errorf("the time is over: %v", err)
	}
	ended, end := context.WithCancel(WithBudget(t.Context()))
	end()
	if _, err := evaluate(ended, c, about(35)); err == nil || Err(ended) == nil || budgetOf(ended).cost.Load() != 0 {
		t.Errorf("a request that has ended: %v, %v", err, Err(ended))
	}
}

func TestExpensiveOperationsHaveACost(t *testing.T) {
	a := about(10_000)
	for _, expression := range []string{
		`object.deep == object.deep`, `object.deep != object.deep`, `object.deep in [object.deep]`, `"%s".format([object.deep]) != ""`, `[object.deep] == [object.deep]`,
	} {
		c := newCompiler(t).CompileCondition([]admissioncel.ExpressionAccessor{condition{expression: expression}}, admissioncel.OptionalVariableDeclarations{}, environment.StoredExpressions)
		ctx := WithBudget(t.Context())
		if results, err := evaluate(ctx, c, a); err != nil || results[0].Error != nil {
			t.Errorf("%s: %v, %v", expression, results, err)
		}
		if cost := budgetOf(ctx).cost.Load(); cost < 10_000 || cost > 40_000 {
			t.Errorf("%s costs %d", expression, cost)
		}
	}
	c := newCompiler(t).CompileCondition([]admissioncel.ExpressionAccessor{condition{expression: `has(object.deep) && object.kind == "Thing" && "a" in ["a", "b"]`}}, admissioncel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	ctx := WithBudget(t.Context())
	if _, err := evaluate(ctx, c, a); err != nil || budgetOf(ctx).cost.Load() > baseCost+20 {
		t.Errorf("a cheap expression costs %d: %v", budgetOf(ctx).cost.Load(), err)
	}
}

func BenchmarkPolicy(b *testing.B) {
	c, err := NewCompiler()
	if err != nil {
		b.Fatal(err)
	}
	for name, expression := range map[string]string{"cheap": `has(object.deep) && object.kind == "Thing"`, "loop": `object.list.all(a, a >= 0)`, "loops": loops, "deep": `object.deep == object.deep`} {
		for kind, compiler := range map[string]admissioncel.ConditionCompiler{
			"metered": c, "upstream": admissioncel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())),
		} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				c := compiler.CompileCondition([]admissioncel.ExpressionAccessor{condition{expression: expression}}, admissioncel.OptionalVariableDeclarations{}, environment.StoredExpressions)
				a := about(30)
				for b.Loop() {
					ctx := WithBudget(b.Context())
					if results, err := evaluate(ctx, c, a); err != nil || results[0].Error != nil {
						b.Fatal(results, err)
					}
				}
			})
		}
	}
}
