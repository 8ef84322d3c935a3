package apiconversion

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	bounded "github.com/kcplane/kcp/server/internal/apis/expressions"
)

const self = schemacel.ScopedVarName

var errTooLong = errors.New("evaluation takes too long")

// transformation is a compiled CEL expression.
type transformation struct {
	program cel.Program
	source  *structuralschema.Structural // nil where self is dynamic
	target  *shape
	reads   []Path // in self
}

// compileTransformation checks and compiles an expression that converts a value of source to a value of target.
func compileTransformation(expression string, source, target *shape, env environment.Type) (*transformation, error) {
	if err := bounded.Check(expression); err != nil {
		return nil, err
	}
	t := &transformation{target: target}
	declared := (*apiservercel.DeclType)(nil)
	if !open(source) {
		declared = model.SchemaDeclType(source.Structural, source.XEmbeddedResource)
	}
	options := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0)}
	if declared == nil {
		options.EnvOptions = []cel.EnvOption{cel.Variable(self, cel.DynType)}
	} else {
		t.source = source.Structural
		declared = declared.MaybeAssignTypeName(self)
		options.EnvOptions = []cel.EnvOption{cel.Variable(self, declared.CelType())}
		options.DeclTypes = []*apiservercel.DeclType{declared}
	}
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(options)
	if err != nil {
		return nil, err
	}
	celEnv, err := set.Env(env)
	if err != nil {
		return nil, err
	}
	checked, issues := celEnv.Compile(expression)
	if issues != nil {
		return nil, errors.New(issues.String())
	}
	if result := checked.OutputType(); !accepts(target, result) {
		return nil, fmt.Errorf("the expression returns %s, but the destination is %s", result, typeName(target))
	}
	t.reads = reads(checked.NativeRep().Expr())
	t.program, err = celEnv.Program(checked,
		cel.CostLimit(celconfig.PerCallLimit),
		cel.CostTracking(&library.CostEstimator{}),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	return t, err
}

// reads returns the fields that an expression reads of self: each chain of field names after it, as far as it goes.
func reads(expression ast.Expr) []Path {
	var all []Path
	inside := map[int64]bool{} // of longer chains
	ast.PreOrderVisit(expression, ast.NewExprVisitor(func(e ast.Expr) {
		if inside[e.ID()] {
			return
		}
		var path Path
		for e.Kind() == ast.SelectKind {
			name, ok := apiservercel.Unescape(e.AsSelect().FieldName())
			if !ok {
				name = e.AsSelect().FieldName()
			}
			path = append(Path{name}, path...)
			e = e.AsSelect().Operand()
			inside[e.ID()] = true
		}
		if e.Kind() == ast.IdentKind && e.AsIdent() == self {
			all = append(all, path)
		}
	}))
	return all
}

// run returns the result of the expression for a value, or false if it has none. It subtracts the cost from the
// budget.
func (t *transformation) run(r *run, value any) (any, bool, error) {
	if r.ctx.Err() != nil {
		return nil, false, errTooLong
	}
	in := types.DefaultTypeAdapter.NativeToValue(value)
	if t.source != nil {
		in = schemacel.UnstructuredToVal(value, t.source)
	}
	out, details, err := t.program.ContextEval(r.ctx, map[string]any{self: in})
	if details != nil && details.ActualCost() != nil {
		r.budget -= int64(min(*details.ActualCost(), math.MaxInt64))
	}
	switch {
	case r.ctx.Err() != nil:
		return nil, false, errTooLong
	case err != nil:
		return nil, false, err
	case r.budget < 0:
		return nil, false, errors.New("the rules together exceed the cost limit")
	}
	if optional, ok := out.(*types.Optional); ok {
		if !optional.HasValue() {
			return nil, false, nil
		}
		out = optional.GetValue()
	}
	result, err := toJSON(out, t.target)
	if err != nil || result == nil && !t.target.Nullable {
		return nil, false, err
	}
	projected, ok := project(result, t.target, nil, nil)
	if !ok || !equal(projected, result) {
		return nil, false, errors.New("the result has fields or types that the schema of the destination does not have")
	}
	return projected, true, nil
}

// toJSON converts a CEL value to a JSON value. The schema is that of the result, and may be nil.
func toJSON(value ref.Val, schema *shape) (any, error) {
	if schema == nil {
		schema = anything
	}
	switch value := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(value), nil
	case types.String:
		return string(value), nil
	case types.Int:
		return int64(value), nil
	case types.Uint:
		if value > math.MaxInt64 {
			return nil, errors.New("the result is a number that is too large")
		}
		return int64(value), nil
	case types.Double:
		if math.IsNaN(float64(value)) || math.IsInf(float64(value), 0) {
			return nil, errors.New("the result is a number that JSON cannot represent")
		}
		return float64(value), nil
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(value), nil
	case types.Duration:
		return value.Duration.String(), nil
	case types.Timestamp:
		if validation := schema.ValueValidation; validation != nil && validation.Format == "date" {
			return value.Time.UTC().Format(time.DateOnly), nil
		}
		return value.Time.UTC().Format(time.RFC3339Nano), nil
	case traits.Mapper:
		return mapToJSON(value, schema)
	case traits.Lister:
		list := []any{}
		for items := value.Iterator(); items.HasNext() == types.True; {
			item, err := toJSON(items.Next(), schema.items)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	}
	return nil, fmt.Errorf("the result is of type %s, which JSON cannot represent; convert it to a string", value.Type().TypeName())
}

func mapToJSON(value traits.Mapper, schema *shape) (any, error) {
	if input, ok := value.Value().(map[string]any); ok {
		return input, nil // part of the source; its keys in CEL may be escaped
	}
	object := map[string]any{}
	for keys := value.Iterator(); keys.HasNext() == types.True; {
		key := keys.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, errors.New("the result has a map with keys that are not strings")
		}
		field, err := toJSON(value.Get(key), child(schema, string(name)))
		if err != nil {
			return nil, err
		}
		object[string(name)] = field
	}
	return object, nil
}

// accepts reports whether values of a CEL type can match a schema. Types that CEL knows only at run time are checked
// at run time.
func accepts(schema *shape, result *cel.Type) bool {
	switch {
	case result.Kind() == types.OpaqueKind && result.TypeName() == types.OptionalType.TypeName():
		return accepts(schema, result.Parameters()[0])
	case schema.Type == "" && schema.XPreserveUnknownFields:
		return true
	}
	switch result.Kind() {
	case types.DynKind, types.AnyKind, types.NullTypeKind, types.TypeParamKind:
		return true
	case types.StringKind, types.BytesKind, types.TimestampKind, types.DurationKind:
		return schema.Type == "string" || schema.XIntOrString
	case types.IntKind, types.UintKind:
		return schema.Type == "integer" || schema.Type == "number" || schema.XIntOrString
	case types.DoubleKind:
		return schema.Type == "number"
	case types.BoolKind:
		return schema.Type == "boolean"
	case types.ListKind:
		return schema.Type == "array" && accepts(schema.items, result.Parameters()[0])
	case types.MapKind:
		key, value := result.Parameters()[0], result.Parameters()[1]
		return schema.Type == "object" && (key.Kind() == types.StringKind || key.Kind() == types.DynKind || key.Kind() == types.TypeParamKind) &&
			(schema.values == nil || accepts(schema.values, value))
	case types.StructKind:
		return schema.Type == "object"
	default:
		return false
	}
}

func typeName(schema *shape) string {
	switch {
	case schema.XIntOrString:
		return "int-or-string"
	case schema.Type == "array":
		return "list of " + typeName(schema.items)
	case schema.Type == "":
		return "any"
	}
	return schema.Type
}
