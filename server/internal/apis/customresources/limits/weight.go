package limits

import (
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// The costs of upstream's validation for each part of a schema, measured in microseconds.
const (
	visitCost    = 5
	propertyCost = 1
	enumsCost    = 16 // values of an enum per microsecond
	patternCost  = 64 // bytes times instructions per microsecond
)

const (
	// MaxValidation is how many microseconds the validation of an object may take.
	MaxValidation = 2_000_000
	// MaxErrors limits the validation errors of an object. Upstream compares each error with all others.
	MaxErrors = 2_000
	// maxPiece limits the errors of a value that is validated as a whole.
	maxPiece = 1_000
)

// Weights estimate the cost of validating objects of one version.
type Weights struct {
	root   *weight
	schema func() (*spec.Schema, error)
}

// weight of one schema.
type weight struct {
	cost        int64 // for each value
	errors      int64 // that a value can have, without those of nested values
	pattern     int64 // instructions
	maxLength   int64 // -1 if unlimited
	properties  map[string]*weight
	items, rest *weight
	branches    []*weight // schemas of the same value
}

// Weigh returns the weights of a schema.
func Weigh(s *apiextensionsv1.JSONSchemaProps) *Weights {
	return &Weights{weightOf(s), sync.OnceValues(func() (*spec.Schema, error) { return OpenAPI(s) })}
}

// OpenAPI returns a schema in the form against which upstream validates objects.
func OpenAPI(s *apiextensionsv1.JSONSchemaProps) (*spec.Schema, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s, internal, nil); err != nil {
		return nil, err
	}
	_, schema, err := apiservervalidation.NewSchemaValidator(internal)
	return schema, err
}

func weightOf(s *apiextensionsv1.JSONSchemaProps) *weight {
	w := &weight{
		cost:   visitCost + propertyCost*int64(len(s.Properties)) + int64((len(s.Enum)+len(s.Required))/enumsCost),
		errors: 1 + int64(len(s.Required)), maxLength: -1,
	}
	if s.MaxLength != nil {
		w.maxLength = *s.MaxLength
	}
	if s.Pattern != "" {
		n, _ := instructions(s.Pattern, MaxPattern)
		w.pattern = int64(n)
	}
	for name, property := range s.Properties {
		if w.properties == nil {
			w.properties = make(map[string]*weight, len(s.Properties))
		}
		w.properties[name] = weightOf(&property)
	}
	if s.Items != nil && s.Items.Schema != nil {
		w.items = weightOf(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		w.rest = weightOf(s.AdditionalProperties.Schema)
	}
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			w.branches = append(w.branches, weightOf(&list[i]))
		}
	}
	if s.Not != nil {
		w.branches = append(w.branches, weightOf(s.Not))
	}
	return w
}

// Check returns an error if an object must not be validated because validation would take too long, or because it has
// too many errors.
func (w *Weights) Check(object map[string]any) error {
	m := &measurement{cost: MaxValidation, errors: maxPiece}
	m.add(object, w.root)
	if m.cost < 0 {
		return fmt.Errorf("the object has too many values for its schema: validation would take more than %d ms; "+
			"make the object smaller, or simplify its schema", MaxValidation/1000)
	}
	if m.errors >= 0 {
		return nil
	}
	schema, err := w.schema()
	if err != nil {
		return nil // upstream cannot use it for validation either
	}
	p := &pieces{left: MaxErrors}
	p.validate(object, schema, w.root, "")
	if p.left >= 0 {
		return nil
	}
	return fmt.Errorf("the object has more than %d errors, the first are: %v", MaxErrors, p.first)
}

// measurement holds the remaining cost while a value is measured. It stops when no cost is left.
type measurement struct{ cost, errors int64 }

func (m *measurement) add(value any, w *weight) {
	m.cost -= w.cost
	m.errors -= w.errors
	if m.cost < 0 {
		return
	}
	for _, branch := range w.branches {
		m.add(value, branch)
	}
	switch value := value.(type) {
	case string:
		if w.pattern > 0 && (w.maxLength < 0 || int64(len(value)) <= 4*w.maxLength) { // otherwise upstream rejects it earlier
			m.cost -= w.pattern * int64(len(value)) / patternCost
		}
	case []any:
		if w.items == nil {
			return
		}
		for _, item := range value {
			if m.add(item, w.items); m.cost < 0 {
				return
			}
		}
	case map[string]any:
		for key, field := range value {
			if within := w.field(key); within != nil {
				if m.add(field, within); m.cost < 0 {
					return
				}
			}
		}
	}
}

func (w *weight) field(key string) *weight {
	if within := w.properties[key]; within != nil {
		return within
	}
	return w.rest
}

// pieces validates an object in parts, each with few errors.
type pieces struct {
	left  int
	first []string
}

func (p *pieces) validate(value any, s *spec.Schema, w *weight, path string) {
	if p.left < 0 {
		return
	}
	m := &measurement{cost: MaxValidation, errors: maxPiece}
	if m.add(value, w); m.errors >= 0 {
		for _, err := range validate.NewSchemaValidator(s, nil, path, strfmt.Default).Validate(value).Errors {
			p.fail(err.Error())
		}
		return
	}
	i := 0
	for _, list := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for j := range list {
			p.validate(value, &list[j], w.branches[i], path)
			i++
		}
	}
	if s.Not != nil {
		p.validate(value, s.Not, w.branches[i], path)
	}
	switch value := value.(type) {
	case []any:
		if s.Items == nil || s.Items.Schema == nil || w.items == nil {
			return
		}
		for i, item := range value {
			p.validate(item, s.Items.Schema, w.items, fmt.Sprintf("%s[%d]", path, i))
		}
	case map[string]any:
		for key, field := range value {
			within := path + "." + key
			if path == "" {
				within = key
			}
			if property, ok := s.Properties[key]; ok && w.properties[key] != nil {
				p.validate(field, &property, w.properties[key], within)
			} else if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil && w.rest != nil {
				p.validate(field, s.AdditionalProperties.Schema, w.rest, within)
			}
		}
	}
}

func (p *pieces) fail(message string) {
	p.left--
	if len(p.first) < 10 {
		if len(message) > 200 {
			message = message[:200]
		}
		p.first = append(p.first, message)
	}
}
