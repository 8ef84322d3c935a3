// Package conversion converts the server's own resources between the versions in which they are served. Values that
// only one version can represent are preserved in annotations of the other version: no sequence of conversions loses
// anything.
//
// Every object can be converted. Admission reports invalid objects: an object that could not be converted would break
// the lists that contain it.
package conversion

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// converters convert an object of a kind from the one other version of that kind.
var converters = map[schema.GroupVersionKind]func(map[string]any) (map[string]any, error){
	apisv1alpha1.SchemeGroupVersion.WithKind("APIExport"):  untyped(ExportToV1alpha1),
	apisv1alpha2.SchemeGroupVersion.WithKind("APIExport"):  untyped(ExportToV1alpha2),
	apisv1alpha1.SchemeGroupVersion.WithKind("APIBinding"): untyped(BindingToV1alpha1),
	apisv1alpha2.SchemeGroupVersion.WithKind("APIBinding"): untyped(BindingToV1alpha2),
}

// Convert returns an object in a version. An object that already has the version is returned unchanged.
func Convert(in *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
	kind := to.WithKind(in.GetKind())
	if in.GroupVersionKind() == kind {
		return in, nil
	}
	convert, ok := converters[kind]
	if !ok {
		return nil, fmt.Errorf("no conversion from %s to %s", in.GroupVersionKind(), kind)
	}
	content, err := convert(in.Object)
	if err != nil {
		return nil, fmt.Errorf("conversion of %s %s to %s: %w", in.GroupVersionKind(), in.GetName(), to, err)
	}
	out := &unstructured.Unstructured{Object: content}
	out.SetGroupVersionKind(kind)
	return out, nil
}

// untyped returns a conversion of the content of objects.
func untyped[In, Out any](convert func(*In) *Out) func(map[string]any) (map[string]any, error) {
	return func(content map[string]any) (map[string]any, error) {
		in := new(In)
		var kept any
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, in); err != nil {
			// Conditions have the same form in all versions. They may contain times that the schema allows and Go does not.
			if content, kept = WithoutConditions(content); kept == nil {
				return nil, err
			}
			in = new(In)
			if runtime.DefaultUnstructuredConverter.FromUnstructured(content, in) != nil {
				return nil, err
			}
		}
		out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(convert(in))
		if err != nil {
			return nil, err
		}
		if status, ok := out["status"].(map[string]any); ok && len(status) == 0 {
			delete(out, "status") // a struct cannot be absent
		}
		if kept != nil {
			err = unstructured.SetNestedField(out, kept, "status", "conditions")
		}
		return out, err
	}
}

// WithoutConditions returns an object without the conditions of its status, and the conditions, or nil if it has none.
func WithoutConditions(content map[string]any) (rest map[string]any, conditions any) {
	status, _ := content["status"].(map[string]any)
	if conditions = status["conditions"]; conditions == nil {
		return content, nil
	}
	content, status = maps.Clone(content), maps.Clone(status)
	delete(status, "conditions")
	content["status"] = status
	return content, conditions
}

// each returns the results of f for the items of a list.
func each[In, Out any](list []In, f func(In) Out) []Out {
	if list == nil {
		return nil
	}
	out := make([]Out, len(list))
	for i, item := range list {
		out[i] = f(item)
	}
	return out
}

// at returns the items of a list at the given indexes.
func at[T any](list []T, places []int) []T {
	return each(places, func(i int) T { return list[i] })
}
