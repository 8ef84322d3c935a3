package expressions

import (
	"context"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
)

// NewCompiler returns upstream's compiler of policies. Compiled policies spend the budget of the request for which they are
// evaluated.
func NewCompiler() (*admissioncel.CompositedCompiler, error) {
	env, err := policyEnvironment()
	if err != nil {
		return nil, err
	}
	compiler, err := admissioncel.NewCompositedCompiler(env)
	if err != nil {
		return nil, err
	}
	c := metered{compiler.Compiler}
	compiler.Compiler, compiler.ConditionCompiler, compiler.MutatingCompiler = c, c, c
	return compiler, nil
}

var policyEnvironment = sync.OnceValues(func() (*environment.EnvSet, error) {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		ProgramOptions:    []cel.ProgramOption{deepCosts()},
	})
})

// metered compiles expressions to programs that spend budgets.
type metered struct{ admissioncel.Compiler }

// CompileCELExpression implements admissioncel.Compiler.
func (c metered) CompileCELExpression(e admissioncel.ExpressionAccessor, o admissioncel.OptionalVariableDeclarations,
	mode environment.Type) admissioncel.CompilationResult {
	result := c.Compiler.CompileCELExpression(e, o, mode)
	if result.Program != nil {
		result.Program = program{result.Program, hasLoops(e.GetExpression())}
	}
	return result
}

// CompileCondition implements admissioncel.ConditionCompiler.
func (c metered) CompileCondition(all []admissioncel.ExpressionAccessor, o admissioncel.OptionalVariableDeclarations,
	mode environment.Type) admissioncel.ConditionEvaluator {
	results := make([]admissioncel.CompilationResult, len(all))
	for i, e := range all {
		if e != nil {
			results[i] = c.CompileCELExpression(e, o, mode)
		}
	}
	return admissioncel.NewCondition(results)
}

// CompileMutatingEvaluator implements admissioncel.MutatingCompiler.
func (c metered) CompileMutatingEvaluator(e admissioncel.ExpressionAccessor, o admissioncel.OptionalVariableDeclarations,
	mode environment.Type) admissioncel.MutatingEvaluator {
	return bounded{admissioncel.NewMutatingEvaluator(c.CompileCELExpression(e, o, mode))}
}

// program is a CEL program that spends the budget of the request for which it is evaluated.
type program struct {
	cel.Program
	loops bool
}

// ContextEval implements cel.Program. It evaluates nothing after the budget is spent, and stops when the request
// ends.
func (p program) ContextEval(ctx context.Context, variables any) (ref.Val, *cel.EvalDetails, error) {
	if err := Err(ctx); err != nil {
		return nil, nil, err
	}
	b := budgetOf(ctx)
	if b == nil {
		return p.Program.ContextEval(ctx, variables)
	}
	until, outermost := b.start()
	if time.Now().After(until) {
		return nil, nil, errTooLong
	}
	value, details, err := p.evaluate(ctx, until, variables)
	cost := uint64(baseCost)
	if details != nil && details.ActualCost() != nil {
		cost += min(*details.ActualCost(), 2*maxCost)
	}
	b.spend(cost)
	if outermost {
		b.stop()
		if b.turnIsOver() { // waiting does not count as evaluation time
			fairqueue.From(ctx).Yield()
		}
	}
	return value, details, err
}

func (p program) evaluate(ctx context.Context, until time.Time, variables any) (ref.Val, *cel.EvalDetails, error) {
	if p.loops { // upstream checks only in loops whether the context has ended
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, until, errTooLong)
		defer cancel()
	}
	return p.Program.ContextEval(ctx, variables)
}

// hasLoops reports whether an expression contains a macro that visits each item of a list or map.
func hasLoops(expression string) bool {
	parsed, issues := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).NewExpressionsEnv().Parse(expression)
	if issues.Err() != nil {
		return true
	}
	loops := false
	ast.PreOrderVisit(root(parsed), ast.NewExprVisitor(func(e ast.Expr) { loops = loops || e.Kind() == ast.ComprehensionKind }))
	return loops
}
