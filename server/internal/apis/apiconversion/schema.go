package apiconversion

import (
	"cmp"
	"math"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
)

// shape is a structural schema that can be walked without copying parts of it, which are large.
type shape struct {
	*structuralschema.Structural
	fields map[string]*shape
	items  *shape
	values *shape // of a map
}

// anything is the shape of values that have no schema.
var anything = &shape{Structural: &structuralschema.Structural{Extensions: structuralschema.Extensions{XPreserveUnknownFields: true}}}

func newShape(schema *structuralschema.Structural) *shape {
	s := &shape{Structural: schema, fields: make(map[string]*shape, len(schema.Properties))}
	for name, property := range schema.Properties {
		s.fields[name] = newShape(&property)
	}
	if schema.Type == "array" {
		s.items = anything
	}
	if schema.Items != nil {
		s.items = newShape(schema.Items)
	}
	switch additional := schema.AdditionalProperties; {
	case additional != nil && additional.Structural != nil:
		s.values = newShape(additional.Structural)
	case additional != nil && additional.Bool, schema.XPreserveUnknownFields:
		s.values = anything
	}
	return s
}

// child returns the schema of a field of an object, or of a key of a map; nil if there can't be one.
func child(schema *shape, key string) *shape {
	switch field, ok := schema.fields[key]; {
	case ok:
		return field
	case schema == anything || schema.values != nil:
		return cmp.Or(schema.values, anything)
	case schema.XEmbeddedResource && (key == "apiVersion" || key == "kind" || key == "metadata"):
		return anything
	}
	return nil
}

// lookup returns the schema at a path; nil if the schema has no such field.
func lookup(schema *shape, path Path) *shape {
	for _, key := range path {
		if schema = child(schema, key); schema == nil {
			return nil
		}
	}
	return schema
}

// open reports whether the schema does not describe the fields of its values, so that they have no types in CEL.
func open(schema *shape) bool {
	return len(schema.fields) == 0 && schema.values == anything
}

// project returns a copy of the parts of a value that a schema allows, or false if it allows none. It leaves out the fields
// in moved, which rules move away, and those in written, which rules write.
func project(value any, schema *shape, moved, written *pathTree) (any, bool) {
	if value == nil {
		return nil, schema.Nullable || schema.Type == "" && schema.XPreserveUnknownFields
	}
	switch {
	case schema.XIntOrString:
		if projected, ok := projectInteger(value); ok {
			return projected, true
		}
		text, ok := value.(string)
		return text, ok
	case schema.Type == "" && schema.XPreserveUnknownFields && len(schema.fields) == 0:
		return runtime.DeepCopyJSONValue(value), true
	}
	switch value := value.(type) {
	case map[string]any:
		if schema.Type == "object" || schema.Type == "" && schema.XPreserveUnknownFields {
			return projectObject(value, schema, moved, written)
		}
	case []any:
		if schema.Type == "array" {
			return projectList(value, schema)
		}
	case string:
		return value, schema.Type == "string"
	case bool:
		return value, schema.Type == "boolean"
	case int64, float64:
		if schema.Type == "integer" {
			return projectInteger(value)
		}
		return value, schema.Type == "number"
	}
	return nil, false
}

func projectObject(value map[string]any, schema *shape, moved, written *pathTree) (any, bool) {
	object, elsewhere := make(map[string]any, len(value)), false
	for key, field := range value {
		from, to := moved.at(key), written.at(key)
		if from.ends() || to.ends() {
			elsewhere = true
			continue
		}
		if fieldSchema := child(schema, key); fieldSchema != nil {
			if projected, ok := project(field, fieldSchema, from, to); ok {
				object[key] = projected
			} else if from != nil || to != nil {
				elsewhere = true
			}
		}
	}
	// An object is removed when all of its fields have moved.
	return object, len(object) > 0 || !elsewhere
}

func projectList(value []any, schema *shape) (any, bool) {
	list := make([]any, len(value))
	for i, item := range value {
		projected, ok := project(item, schema.items, nil, nil)
		if !ok {
			return nil, false // if the item were dropped, the indexes of others would change
		}
		list[i] = projected
	}
	return list, true
}

// projectInteger returns a whole number as an integer, whatever its notation.
func projectInteger(value any) (any, bool) {
	switch value := value.(type) {
	case int64:
		return value, true
	case float64:
		if value == math.Trunc(value) && math.Abs(value) <= 1<<53 {
			return int64(value), true
		}
	}
	return nil, false
}

// moves reports whether values of one type are valid, unchanged, as values of another.
func moves(from, to *shape) bool {
	switch {
	case from.Type == "" && from.XPreserveUnknownFields, to.Type == "" && to.XPreserveUnknownFields:
		return true
	case from.XIntOrString || to.XIntOrString:
		return intOrString(from) && intOrString(to)
	case from.Type == "array" && to.Type == "array":
		return moves(from.items, to.items)
	case from.Type == "integer" && to.Type == "number", from.Type == "number" && to.Type == "integer":
		return true
	}
	return from.Type == to.Type
}

func intOrString(schema *shape) bool {
	return schema.XIntOrString || schema.Type == "integer" || schema.Type == "string"
}

// equal reports whether two values are equal in JSON, where 1 equals 1.0.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, value := range a {
			if other, found := b[key]; !found || !equal(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case int64:
		if b, ok := b.(float64); ok {
			return float64(a) == b
		}
	case float64:
		if b, ok := b.(int64); ok {
			return a == float64(b)
		}
	}
	return a == b
}
