package workspaceauth

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

// evaluated returns the result of an expression for claims, or its error.
func evaluated(t *testing.T, expression string, claims map[string]any) (any, error) {
	t.Helper()
	compiler := newCompiler()
	result, err := compiler.CompileClaimsExpression(&authenticationcel.ClaimMappingExpression{Expression: expression})
	if err != nil {
		return nil, err
	}
	value, _, err := result.Program.ContextEval(t.Context(), map[string]any{"claims": types.DefaultTypeAdapter.NativeToValue(claims)})
	if err != nil {
		return nil, err
	}
	return value.Value(), nil
}

func TestTheCostOfAnIssuersExpressionIsLimited(t *testing.T) {
	groups := make([]string, 200)
	for i := range groups {
		groups[i] = "group"
	}
	claims := map[string]any{"sub": "jane", "groups": groups}
	for name, expression := range map[string]string{
		"lists in lists":         `dyn(claims.groups).map(a, dyn(claims.groups).map(b, dyn(claims.groups).map(c, dyn(claims.groups).map(d, a + b + c + d)[0])[0])[0])[0]`,
		"a text that multiplies": `string(claims.sub)` + strings.Repeat(`.replace("", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")`, 20),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := evaluated(t, expression, claims); err == nil || !(strings.Contains(err.Error(), "cost") || strings.Contains(err.Error(), "replace()")) {
				t.Errorf("got the error %v", err)
			}
		})
	}
	if got, err := evaluated(t, `string(claims.sub) + ":" + dyn(claims.groups).filter(g, g.startsWith("g"))[0]`, claims); err != nil || got != "jane:group" {
		t.Errorf("got %v, %v", got, err)
	}
	compiler := newCompiler()
	rule, err := compiler.CompileUserExpression(&authenticationcel.UserValidationCondition{Expression: `!user.username.startsWith("system:")`})
	if err != nil {
		t.Fatal(err)
	}
	value, _, err := rule.Program.ContextEval(t.Context(), map[string]any{"user": map[string]any{"username": "jane"}})
	if err != nil || value.Value() != true {
		t.Errorf("got %v, %v", value, err)
	}
}
