package apiconversion

import (
	"context"
	"fmt"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Converter converts the objects of one API between its versions. It is immutable and safe for concurrent use.
type Converter struct {
	timeout     time.Duration
	shapes      map[string]*shape
	conversions map[pair]*conversion
}

// Convert returns the object in another version. The result shares no memory with obj, which is not changed. Errors name
// the object and the rule that failed; they may quote values of that object.
func (c *Converter) Convert(ctx context.Context, obj *unstructured.Unstructured, version string) (*unstructured.Unstructured, error) {
	from := obj.GroupVersionKind()
	if from.Version == version && c.shapes[version] != nil {
		return obj.DeepCopy(), nil
	}
	conversion := c.conversions[pair{from.Version, version}]
	if conversion == nil {
		return nil, fmt.Errorf("converting %s: no conversion from version %q to %q is declared", from.GroupKind(), from.Version, version)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	converted, err := conversion.object(&run{ctx: ctx, budget: celconfig.RuntimeCELCostBudget}, obj)
	if err != nil {
		name := obj.GetName()
		if namespace := obj.GetNamespace(); namespace != "" {
			name = namespace + "/" + name
		}
		return nil, fmt.Errorf("converting %s %q from %s to %s: %w", from.GroupKind(), name, from.Version, version, err)
	}
	converted.SetGroupVersionKind(schema.GroupVersionKind{Group: from.Group, Version: version, Kind: from.Kind})
	return converted, nil
}

// run is the conversion of one object.
type run struct {
	ctx    context.Context
	budget int64 // of CEL cost, over all rules
}

func (r *run) exhausted() bool { return r.ctx.Err() != nil || r.budget < 0 }

func (c *conversion) object(r *run, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	annotations := obj.GetAnnotations() // a copy
	content, left, err := c.content(r, withoutMeta(obj.Object), parseKept(annotations[Annotation(c.to)], c.target))
	if err != nil {
		return nil, err
	}
	text, err := format(left)
	if err != nil {
		return nil, err
	}
	if metadata, found := obj.Object["metadata"]; found {
		content["metadata"] = runtime.DeepCopyJSONValue(metadata)
	}
	converted := &unstructured.Unstructured{Object: content}
	if len(annotations) == 0 && text == "" {
		return converted, nil
	}
	delete(annotations, Annotation(c.to))
	delete(annotations, Annotation(c.from))
	if text != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[Annotation(c.from)] = text
		if err := apivalidation.ValidateAnnotationsSize(annotations); err != nil {
			return nil, fmt.Errorf("version %s cannot represent all fields, and the remaining fields are too large for an annotation: %w", c.to, err)
		}
	}
	if len(annotations) == 0 {
		annotations = nil // removes the field
	}
	converted.SetAnnotations(annotations)
	return converted, nil
}

func withoutMeta(object map[string]any) map[string]any {
	content := make(map[string]any, len(object))
	for key, value := range object {
		if !belongsToAll(Path{key}) {
			content[key] = value
		}
	}
	return content
}

// content converts everything except apiVersion, kind and metadata. It restores the preserved values of the target
// version that are still valid, and returns the values of the source that the result cannot represent.
func (c *conversion) content(r *run, source map[string]any, kept []difference) (result map[string]any, left []difference, err error) {
	plain, err := c.apply(r, source, false)
	if err != nil {
		return nil, nil, err
	}
	// If the rules of the two directions do not match, restored values can conflict with the other values. Then the
	// source, which a client wrote, takes precedence over preserved values.
	for _, attempt := range [][]difference{kept, c.aside(kept, plain), nil} {
		var image map[string]any
		if result, image, err = c.restore(r, source, plain, attempt); err != nil {
			return nil, nil, err
		}
		left = differences(source, image)
		if len(left) == 0 || len(attempt) == 0 {
			break
		}
		back, _, err := c.reverse.restore(r, result, image, left)
		if err != nil {
			return nil, nil, err
		}
		if equal(back, source) {
			break
		}
	}
	return result, left, nil
}

// apply converts by the rules only. With tryOnly, a rule that fails produces nothing. Comparisons use tryOnly, so that
// neither preserved values nor results of the opposite direction make a conversion fail.
func (c *conversion) apply(r *run, source map[string]any, tryOnly bool) (map[string]any, error) {
	projected, _ := projectObject(source, c.target, c.moved, c.written)
	result := projected.(map[string]any)
	for i := range c.rules {
		rule := &c.rules[i]
		value, found := rule.field.get(source)
		if !found {
			continue
		}
		made, ok, err := rule.apply(r, value, c)
		if tryOnly && err != nil && !r.exhausted() {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s, from %s to %s: %w", rule, c.from, c.to, err)
		}
		if ok {
			rule.destination.set(result, made)
		}
	}
	return result, nil
}

func (rule *rule) apply(r *run, value any, c *conversion) (any, bool, error) {
	if rule.transformation == nil {
		made, ok := project(value, rule.target, c.moved.at(rule.field...), c.written.at(rule.destination...))
		return made, ok, nil
	}
	if value == nil {
		return nil, false, nil
	}
	return rule.transformation.run(r, value)
}
