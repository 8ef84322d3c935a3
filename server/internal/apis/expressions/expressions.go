// Package expressions rejects expressions of tenants in which a single call can create a value of any size. CEL counts the
// cost of a call after it returns, so upstream's limits are too late for these expressions.
package expressions

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"k8s.io/apiserver/pkg/cel/environment"
)

const (
	// maxLength is the length of an expression, in bytes.
	maxLength = 64 << 10
	// maxGrowth limits the factor by which all calls of replace together can lengthen a string.
	maxGrowth = 8
	// maxSeparator is the maximum length of the separator of join, in bytes.
	maxSeparator = 64
	// maxElements is the maximum number of values of a literal list that is formatted or joined.
	maxElements = 64
)

// Check returns an error if an expression is rejected. Expressions that do not parse are left to the compiler.
func Check(expression string) error {
	if len(expression) > maxLength {
		return fmt.Errorf("an expression may have at most %d bytes", maxLength)
	}
	parsed, issues := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).NewExpressionsEnv().Parse(expression)
	if issues.Err() != nil {
		return nil
	}
	c := &checker{growth: 1}
	ast.PreOrderVisit(root(parsed), ast.NewExprVisitor(func(e ast.Expr) {
		if c.err == nil && e.Kind() == ast.CallKind && e.AsCall().IsMemberFunction() {
			c.call(e.AsCall())
		}
	}))
	return c.err
}

func root(parsed *cel.Ast) ast.Expr { return parsed.NativeRep().Expr() }

type checker struct {
	growth int
	err    error
}

func (c *checker) call(call ast.CallExpr) {
	args := call.Args()
	switch {
	case call.FunctionName() == "replace" && len(args) >= 2:
		old, isText := literal(args[0])
		if !isText {
			old = ""
		}
		replacement, ok := literal(args[1])
		if !ok {
			c.err = fmt.Errorf("the second argument of replace() must be a string literal, because the result of an expression is unbounded")
			return
		}
		each := len(replacement) + 1
		if old != "" {
			each = max(1, (len(replacement)+len(old)-1)/len(old))
		} else if replacement == "" {
			each = 1
		}
		if c.growth *= each; c.growth > maxGrowth {
			c.err = fmt.Errorf("replace() can make a string more than %d times longer", maxGrowth)
		}
	case call.FunctionName() == "join" && len(args) <= 1:
		if len(args) == 1 {
			if separator, ok := literal(args[0]); !ok || len(separator) > maxSeparator {
				c.err = fmt.Errorf("the argument of join() must be a string literal of at most %d bytes", maxSeparator)
				return
			}
		}
		c.elements("join()", call.Target())
		if target := call.Target(); c.err == nil && target.Kind() == ast.ComprehensionKind && repeats(target.AsComprehension()) {
			c.err = fmt.Errorf("join() of a map(): the expression for each item may refer only to that item")
		}
	case call.FunctionName() == "format" && len(args) == 1:
		c.elements("format()", args[0])
	}
}

// elements rejects lists of many values, which can all be the same large value.
func (c *checker) elements(of string, list ast.Expr) {
	if list.Kind() == ast.ListKind && list.AsList().Size() > maxElements {
		c.err = fmt.Errorf("%s of a list of more than %d values", of, maxElements)
	}
}

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().Value().(string)
	return text, ok
}

// repeats reports whether a comprehension can produce the same large value for each item.
func repeats(loop ast.ComprehensionExpr) bool {
	own := map[string]bool{loop.IterVar(): true, loop.IterVar2(): true, loop.AccuVar(): true}
	found := false
	ast.PreOrderVisit(loop.LoopStep(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			inner := e.AsComprehension()
			own[inner.IterVar()], own[inner.IterVar2()], own[inner.AccuVar()] = true, true, true
		case ast.IdentKind:
			found = found || !own[e.AsIdent()]
		}
	}))
	return found
}
