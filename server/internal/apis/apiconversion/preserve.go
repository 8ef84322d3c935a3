package apiconversion

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
)

// Annotation returns the key under which objects in other versions preserve the values that only this version can
// represent.
func Annotation(version string) string { return apisv1alpha1.PreserveAnnotationPrefix + version }

// kept is the value of the annotation: the differences between the version and the result of the rules for the other
// version.
type kept struct {
	// Values by path.
	Values map[string]any `json:"values,omitempty"`
	// Absent are the paths of fields that the rules would set but the version does not have.
	Absent []string `json:"absent,omitempty"`
}

// difference is a field in which two objects differ.
type difference struct {
	path   Path
	absent bool
	value  any
}

// parseKept reads an annotation. It drops entries that are not possible in an object of the schema.
func parseKept(annotation string, schema *shape) []difference {
	var k kept
	if annotation == "" || utiljson.Unmarshal([]byte(annotation), &k) != nil {
		return nil
	}
	var all []difference
	add := func(text string, absent bool, value any) {
		path, err := ParsePath(text)
		if err != nil || belongsToAll(path) {
			return
		}
		fieldSchema := lookup(schema, path)
		if fieldSchema == nil {
			return
		}
		if hasFields(value) {
			return // its fields have entries of their own
		}
		if !absent {
			projected, ok := project(value, fieldSchema, nil, nil)
			if !ok || !equal(projected, value) {
				return
			}
			value = projected
		}
		all = append(all, difference{path: path, absent: absent, value: value})
	}
	for _, text := range k.Absent {
		add(text, true, nil)
	}
	for text, value := range k.Values {
		add(text, false, value)
	}
	inOrder(all)
	return all
}

// inOrder sorts outer paths before the paths inside them, so that inner values are not overwritten.
func inOrder(all []difference) {
	slices.SortFunc(all, func(a, b difference) int { return slices.Compare(a.path, b.path) })
}

// format returns the annotation for the differences; empty if there are none.
func format(differences []difference) (string, error) {
	if len(differences) == 0 {
		return "", nil
	}
	k := kept{Values: map[string]any{}}
	for _, d := range differences {
		if d.absent {
			k.Absent = append(k.Absent, d.path.String())
		} else {
			k.Values[d.path.String()] = d.value
		}
	}
	slices.Sort(k.Absent)
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(k)
	return strings.TrimSuffix(text.String(), "\n"), err
}

// differences returns the fields to set or remove in other to make it equal to object: values that are not objects, and
// empty objects.
func differences(object, other map[string]any) []difference {
	var all []difference
	collect(nil, object, other, &all)
	inOrder(all)
	return all
}

func collect(path Path, object, other map[string]any, all *[]difference) {
	for key, value := range object {
		at := path.join(key)
		otherValue, found := other[key]
		if found && equal(value, otherValue) {
			continue
		}
		fields, isObject := value.(map[string]any)
		otherFields, otherIsObject := otherValue.(map[string]any)
		if isObject && (len(fields) > 0 || otherIsObject) {
			collect(at, fields, otherFields, all)
		} else {
			*all = append(*all, difference{path: at, value: value})
		}
	}
	for key := range other {
		if _, found := object[key]; !found {
			*all = append(*all, difference{path: path.join(key), absent: true})
		}
	}
}

// patched returns a copy of object with the differences applied.
func patched(object map[string]any, all []difference) map[string]any {
	if len(all) == 0 {
		return object
	}
	object = runtime.DeepCopyJSON(object)
	for _, d := range all {
		if d.absent {
			d.path.remove(object)
			continue
		}
		if existing, _ := d.path.get(object); isEmpty(d.value) && hasFields(existing) {
			continue // the entry is for the object, not for its fields
		}
		d.path.set(object, runtime.DeepCopyJSONValue(d.value))
	}
	return object
}
