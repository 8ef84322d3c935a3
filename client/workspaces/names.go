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

// separator does not occur in names of logical clusters, namespaces or objects.
const separator = "|"

// qualify returns the namespace and name of an object in the cache. Caches identify objects by these only, so qualify prepends the
// cluster to the namespace, or to the name of a cluster-scoped object.
func qualify(cluster, namespace, name string) (string, string) {
	if namespace == "" {
		return "", cluster + separator + name
	}
	return cluster + separator + namespace, name
}

var errNowhere = errors.New("the object has no annotation " + ClusterAnnotation + ": the server is not a virtual workspace")

// rename changes the names of an object to those in the cache. The object must not be shared.
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

// restore changes the names of an object back to its original ones. It does not change what the object shares with the cache.
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

// restored returns a copy of an object in the cache, with its original names.
func restored(o client.Object) client.Object {
	shallow := reflect.New(reflect.TypeOf(o).Elem())
	shallow.Elem().Set(reflect.ValueOf(o).Elem())
	c := shallow.Interface().(client.Object)
	restore(c)
	return c
}
