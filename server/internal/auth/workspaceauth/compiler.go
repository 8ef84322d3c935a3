package workspaceauth

import (
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/kcplane/kcp/server/internal/apis/expressions"
)

// boundedCompiler rejects expressions in which a single call can create a value of any size, because CEL counts costs
// only after each call.
type boundedCompiler struct{ authenticationcel.Compiler }

// CompileClaimsExpression implements authenticationcel.Compiler.
func (b boundedCompiler) CompileClaimsExpression(e authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	if err := expressions.Check(e.GetExpression()); err != nil {
		return authenticationcel.CompilationResult{}, err
	}
	return b.Compiler.CompileClaimsExpression(e)
}

// CompileUserExpression implements authenticationcel.Compiler.
func (b boundedCompiler) CompileUserExpression(e authenticationcel.ExpressionAccessor) (authenticationcel.CompilationResult, error) {
	if err := expressions.Check(e.GetExpression()); err != nil {
		return authenticationcel.CompilationResult{}, err
	}
	return b.Compiler.CompileUserExpression(e)
}
