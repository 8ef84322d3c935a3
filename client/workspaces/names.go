package workspaces

import (
	"errors"
	"maps"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// separator is in no name of a logical cluster, namespace or object.
const separator = "|"

// qualify returns the namespace and name by which the cache knows an object: caches know by nothing else, so that the cluster is put
// in front of the namespace, or of the name of what is in no namespace.
func qualify(cluster, namespace, name string) (string, string) {
	if namespace == "" {
		return "", cluster + separator + name
	}
	return cluster + separator + namespace, name
}

var errNowhere = errors.New("the object has no annotation " + ClusterAnnotation + ": it does not come from the URL of a virtual workspace")

// rename gives an object, which nobody else has, the names by which the cache knows it.
func rename(object runtime.Object) error {
	o, ok := object.(client.Object)
	if !ok || ClusterOf(o) == "" {
		return errNowhere
	}
	namespace, name := qualify(ClusterOf(o), o.GetNamespace(), o.GetName())
	o.SetNamespace(namespace)
	o.SetName(name)
	return nil
}

// restore gives an object, which may share what it points to with the cache, its own names again.
func restore(o client.Object) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.Object = maps.Clone(u.Object)
		if metadata, ok := u.Object["metadata"].(map[string]any); ok {
			u.Object["metadata"] = maps.Clone(metadata)
		}
	}
	prefix := ClusterOf(o) + separator
	if namespace, ok := strings.CutPrefix(o.GetNamespace(), prefix); ok {
		o.SetNamespace(namespace)
	} else if name, ok := strings.CutPrefix(o.GetName(), prefix); ok {
		o.SetName(name)
	}
}

// restored returns an object of the cache under its own names.
func restored(o client.Object) client.Object {
	shallow := reflect.New(reflect.TypeOf(o).Elem())
	shallow.Elem().Set(reflect.ValueOf(o).Elem())
	c := shallow.Interface().(client.Object)
	restore(c)
	return c
}
