package workspaceauth

import (
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/kcplane/kcp/server/internal/apis/expressions"
)

// boundedCompiler refuses expressions one call of which can make a value of any size: costs are counted after each call.
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
