package apiconversion

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
)

// DefaultTimeout limits the conversion of one object.
const DefaultTimeout = time.Second

// Limits of an APIConversion. Each expression is compiled with the whole schema of its input.
const (
	MaxRules           = 500 // of one conversion
	MaxTransformations = 200 // of all conversions
	maxTransformation  = 8 << 10
)

// Options of Compile; the zero value has the defaults.
type Options struct {
	// Environment is the CEL environment: environment.NewExpressions for expressions in a request,
	// environment.StoredExpressions, the default, for expressions that were checked when they were stored.
	Environment environment.Type
	// Timeout limits the conversion of one object; DefaultTimeout by default.
	Timeout time.Duration
}

// pair is a direction of conversion.
type pair struct{ from, to string }

// conversion converts in one direction. It is immutable.
type conversion struct {
	pair
	source, target *shape
	rules          []rule // outer destinations first
	moved          *pathTree
	written        *pathTree
	reverse        *conversion
}

// rule is a compiled APIConversionRule.
type rule struct {
	field, destination Path
	target             *shape          // of the destination
	transformation     *transformation // nil if the value is copied unchanged
}

// looksInto reports whether the rule has a transformation that reads an object which stays at its path.
func (r *rule) looksInto(source *shape) bool {
	return r.transformation != nil && len(source.fields) > 0
}

// readsFrom reports whether the rule reads the value at the path, or a part of it.
func (r *rule) readsFrom(path Path) bool {
	if r.transformation == nil {
		return path.overlaps(r.field)
	}
	return slices.ContainsFunc(r.transformation.reads, func(read Path) bool { return path.overlaps(r.field.join(read...)) })
}

// String names the rule in errors.
func (r *rule) String() string { return fmt.Sprintf("rule %s → %s", r.field, r.destination) }

// Compile returns the converter between all versions of an API, whose structural schemas are given by version. A
// conversion from each version to each other version is required. Errors name fields of the spec.
func Compile(spec *apisv1alpha1.APIConversionSpec, schemas map[string]*structuralschema.Structural,
	options Options) (*Converter, field.ErrorList) {
	options.Environment = cmp.Or(options.Environment, environment.StoredExpressions)
	converter := &Converter{timeout: cmp.Or(options.Timeout, DefaultTimeout), shapes: map[string]*shape{}, conversions: map[pair]*conversion{}}
	for version, schema := range schemas {
		converter.shapes[version] = newShape(schema)
	}
	root := field.NewPath("spec", "conversions")
	errs := exceeded(spec, root)
	if len(errs) > 0 {
		return nil, errs
	}
	for i := range spec.Conversions {
		declared, at := &spec.Conversions[i], root.Index(i)
		direction := pair{declared.From, declared.To}
		if unknown := checkPair(direction, schemas, at); len(unknown) > 0 {
			errs = append(errs, unknown...)
			continue
		}
		if _, found := converter.conversions[direction]; found {
			errs = append(errs, field.Duplicate(at, fmt.Sprintf("%s to %s", direction.from, direction.to)))
			continue
		}
		c := &conversion{pair: direction, source: converter.shapes[direction.from], target: converter.shapes[direction.to]}
		errs = append(errs, c.compile(declared, options.Environment, at)...)
		converter.conversions[direction] = c
	}
	if len(errs) > 0 {
		return nil, errs
	}
	versions := slices.Sorted(maps.Keys(schemas))
	for _, from := range versions {
		for _, to := range versions {
			direction := pair{from, to}
			if from == to {
				continue
			}
			if c := converter.conversions[direction]; c != nil {
				c.reverse = converter.conversions[pair{to, from}]
				continue
			}
			errs = append(errs, field.Required(root, fmt.Sprintf("a conversion from %s to %s is required; its rules may be empty", from, to)))
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return converter, nil
}

// exceeded returns an error for each limit that a spec exceeds.
func exceeded(spec *apisv1alpha1.APIConversionSpec, root *field.Path) (errs field.ErrorList) {
	transformations := 0
	for i := range spec.Conversions {
		rules := root.Index(i).Child("rules")
		if n := len(spec.Conversions[i].Rules); n > MaxRules {
			errs = append(errs, field.TooMany(rules, n, MaxRules))
		}
		for j := range spec.Conversions[i].Rules {
			text := spec.Conversions[i].Rules[j].Transformation
			if len(text) > maxTransformation {
				errs = append(errs, field.TooLong(rules.Index(j).Child("transformation"), "", maxTransformation))
			}
			if text != "" {
				transformations++
			}
		}
	}
	if transformations > MaxTransformations {
		errs = append(errs, field.Forbidden(root,
			fmt.Sprintf("has %d transformations; at most %d are allowed", transformations, MaxTransformations)))
	}
	return errs
}

func checkPair(direction pair, schemas map[string]*structuralschema.Structural, at *field.Path) (errs field.ErrorList) {
	known := slices.Sorted(maps.Keys(schemas))
	if schemas[direction.from] == nil {
		errs = append(errs, field.NotSupported(at.Child("from"), direction.from, known))
	}
	if schemas[direction.to] == nil {
		errs = append(errs, field.NotSupported(at.Child("to"), direction.to, known))
	}
	if len(errs) == 0 && direction.from == direction.to {
		errs = append(errs, field.Invalid(at.Child("to"), direction.to, "must differ from the version in from"))
	}
	return errs
}

func (c *conversion) compile(declared *apisv1alpha1.APIVersionConversion, env environment.Type, at *field.Path) (errs field.ErrorList) {
	destinations := map[string]bool{}
	for i := range declared.Rules {
		rulePath := at.Child("rules").Index(i)
		r, problem := c.compileRule(&declared.Rules[i], env, rulePath)
		if problem != nil {
			errs = append(errs, problem)
			continue
		}
		if destination := r.destination.String(); destinations[destination] {
			errs = append(errs, field.Duplicate(rulePath.Child("destination"), destination))
		} else {
			destinations[destination] = true
			c.rules = append(c.rules, *r)
		}
	}
	for i, text := range declared.Preserve {
		if _, _, problem := resolve(text, c.source, c.from, at.Child("preserve").Index(i)); problem != nil {
			errs = append(errs, problem)
		}
	}
	errs = append(errs, c.nested(at)...)
	slices.SortStableFunc(c.rules, func(a, b rule) int { return slices.Compare(a.destination, b.destination) })
	c.moved, c.written = &pathTree{}, &pathTree{}
	for i := range c.rules {
		r := &c.rules[i]
		c.written.add(r.destination)
		if !r.looksInto(lookup(c.source, r.field)) {
			c.moved.add(r.field)
		}
	}
	return errs
}

// nested rejects rules that write into the result of the expression of another rule.
func (c *conversion) nested(at *field.Path) (errs field.ErrorList) {
	for i := range c.rules {
		for j := range c.rules {
			outer, inner := &c.rules[i], &c.rules[j]
			if _, within := inner.destination.within(outer.destination); within && i != j && outer.transformation != nil {
				errs = append(errs, field.Invalid(at.Child("rules"), inner.destination.String(),
					fmt.Sprintf("the destination is inside %s, which the transformation of another rule writes", outer.destination)))
			}
		}
	}
	return errs
}

func (c *conversion) compileRule(declared *apisv1alpha1.APIConversionRule, env environment.Type, at *field.Path) (*rule, *field.Error) {
	from, source, problem := resolve(declared.Field, c.source, c.from, at.Child("field"))
	if problem != nil {
		return nil, problem
	}
	to, target, problem := resolve(declared.Destination, c.target, c.to, at.Child("destination"))
	if problem != nil {
		return nil, problem
	}
	r := &rule{field: from, destination: to, target: target}
	if strings.TrimSpace(declared.Transformation) == "" {
		if !moves(source, target) {
			return nil, field.Invalid(at.Child("destination"), declared.Destination,
				fmt.Sprintf("is %s, but the field %s is %s; add a transformation", typeName(target), declared.Field, typeName(source)))
		}
		return r, nil
	}
	var err error
	if r.transformation, err = compileTransformation(declared.Transformation, source, target, env); err != nil {
		return nil, field.Invalid(at.Child("transformation"), declared.Transformation, err.Error())
	}
	return r, nil
}

// resolve returns the path in a spec, and the schema at that path.
func resolve(text string, schema *shape, version string, at *field.Path) (Path, *shape, *field.Error) {
	path, err := ParsePath(text)
	if err != nil {
		return nil, nil, field.Invalid(at, text, err.Error())
	}
	if belongsToAll(path) {
		return nil, nil, field.Invalid(at, text, "apiVersion, kind and metadata are not converted")
	}
	for i := range path {
		next := child(schema, path[i])
		switch {
		case next != nil:
			schema = next
		case schema.Type == "array":
			return nil, nil, field.Invalid(at, text, fmt.Sprintf("%s is a list; a rule must address the whole list", path[:i]))
		default:
			return nil, nil, field.Invalid(at, text, fmt.Sprintf("version %s has no field %s", version, path[:i+1]))
		}
	}
	return path, schema, nil
}

// belongsToAll reports whether a path is in the part that objects have in every version.
func belongsToAll(path Path) bool {
	return path[0] == "apiVersion" || path[0] == "kind" || path[0] == "metadata"
}
