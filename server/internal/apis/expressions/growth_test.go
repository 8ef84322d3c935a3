package expressions

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// A list costs little, whatever its items are. In written form, this one has 10^12 items.
func TestTheSizeOfAMutationIsLimited(t *testing.T) {
	compiler := newCompiler(t)
	variables := []admissioncel.NamedExpressionAccessor{condition{"v0", `["0123456789"]`}}
	for i := 1; i <= 12; i++ {
		before := fmt.Sprintf("variables.v%d,", i-1)
		variables = append(variables, condition{fmt.Sprintf("v%d", i), "[" + strings.TrimSuffix(strings.Repeat(before, 10), ",") + "]"})
	}
	options := admissioncel.OptionalVariableDeclarations{HasPatchTypes: true}
	compiler.CompileAndStoreVariables(variables, options, environment.StoredExpressions)
	for expression, fits := range map[string]bool{
		`Object{spec: Object.spec{a: "b", list: variables.v2}}`:                               true,
		`Object{spec: Object.spec{list: variables.v12}}`:                                      false,
		`[JSONPatch{op: "add", path: "/spec", value: variables.v2}]`:                          true,
		`[JSONPatch{op: "add", path: "/spec", value: variables.v12}]`:                         false,
		`[JSONPatch{op: "add", path: "/spec", value: {"a": {"b": variables.v12}}}]`:           false,
		`[JSONPatch{op: "add", path: "/spec", value: Object.spec{list: variables.v12}}]`:      false,
		`[JSONPatch{op: "remove", path: "/spec"}]`:                                            true,
		`Object{spec: Object.spec{a: {"a": variables.v2, "b": variables.v2}, b: null, c: 1}}`: true,
	} {
		e := compiler.CompileMutatingEvaluator(condition{expression: expression}, options, environment.StoredExpressions)
		result, _, err := e.ForInput(compiler.CreateContext(WithBudget(t.Context())), about(1), nil, admissioncel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
		}
		if (result.Error == nil) != fits || (!fits && !strings.Contains(result.Error.Error(), "writes more than 3145728 bytes")) {
			t.Errorf("%s: %v", expression, result.Error)
		}
	}
	object := dynamic.NewObjectVal(cel.ObjectType("Object"), map[string]ref.Val{"field": types.String("0123456789")})
	if n := written(object, 1000); n != 8+5+8+10 {
		t.Errorf("an object has %d bytes", n)
	}
}
