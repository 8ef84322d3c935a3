package informers

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Lister reads the objects of one resource, of type T, from an informer.
type Lister[T runtime.Object] struct{ *Informer }

// Get returns one object, or a NotFound error. Namespace is empty for cluster scoped resources.
func (l Lister[T]) Get(cluster logicalcluster.Name, namespace, name string) (T, error) {
	obj, ok := l.store.get(Key{Cluster: cluster, Namespace: namespace, Name: name}.String())
	if !ok {
		var none T
		return none, apierrors.NewNotFound(l.resource.GroupResource(), name)
	}
	return obj.(T), nil
}

// List returns the objects of one cluster.
func (l Lister[T]) List(cluster logicalcluster.Name) ([]T, error) {
	return l.ByIndex(byCluster, string(cluster))
}

// ListNamespace returns the objects of one namespace of one cluster.
func (l Lister[T]) ListNamespace(cluster logicalcluster.Name, namespace string) ([]T, error) {
	return l.ByIndex(byNamespace, string(cluster)+"|"+namespace)
}

// ByIndex returns the objects that one of the informer's indexes maps to value.
func (l Lister[T]) ByIndex(index, value string) ([]T, error) {
	objs, err := l.indexer.ByIndex(index, value)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(objs))
	for i := range objs {
		out[i] = objs[i].(T)
	}
	return out, nil
}
