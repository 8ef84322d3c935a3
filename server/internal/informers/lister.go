package informers

import (
	"iter"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Lister reads the objects of one resource, of type T, from an informer. Of a global kind it also has the objects of other shards, those
// of this shard first.
type Lister[T runtime.Object] struct{ *Informer }

// Get returns one object, or a NotFound error. Namespace is empty for cluster scoped resources.
func (l Lister[T]) Get(cluster logicalcluster.Name, namespace, name string) (T, error) {
	obj, ok := l.find(cluster, namespace, name)
	return l.typed(obj, ok, name)
}

// Find is Get without an error, for callers that often ask for objects that do not exist: the error costs more than looking for the object.
func (l Lister[T]) Find(cluster logicalcluster.Name, namespace, name string) (T, bool) {
	obj, ok := l.find(cluster, namespace, name)
	if !ok {
		var none T
		return none, false
	}
	return obj.(T), true
}

func (l Lister[T]) find(cluster logicalcluster.Name, namespace, name string) (runtime.Object, bool) {
	key := Key{Cluster: cluster, Namespace: namespace, Name: name}
	obj, ok := l.lookUp(key)
	if !ok && l.merged != nil {
		obj, ok = l.merged.get(key)
	}
	return obj, ok
}

// Has reports whether this shard has an object. It is faster than Get for objects that are packed.
func (l Lister[T]) Has(cluster logicalcluster.Name, namespace, name string) bool {
	return l.lookFor(Key{Cluster: cluster, Namespace: namespace, Name: name})
}

func (l Lister[T]) typed(obj runtime.Object, ok bool, name string) (T, error) {
	if !ok {
		var none T
		return none, apierrors.NewNotFound(l.resource.GroupResource(), name)
	}
	return obj.(T), nil
}

// All yields the objects of this shard, each as it is when it is its turn.
func (l Lister[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, key := range l.store.keys() {
			if obj, ok := l.store.get(key); ok && !yield(obj.(T)) {
				return
			}
		}
	}
}

// Clusters yields the cluster of each object of this shard, without the object.
func (l Lister[T]) Clusters() iter.Seq[logicalcluster.Name] {
	return func(yield func(logicalcluster.Name) bool) {
		for _, key := range l.store.keys() {
			cluster, _, _ := strings.Cut(key, "|")
			if !yield(logicalcluster.Name(cluster)) {
				return
			}
		}
	}
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
	if l.merged == nil {
		return out, nil
	}
	return l.appendMerged(out, index, value)
}

// appendMerged appends the objects of other shards, except where this shard has an object of the same key.
func (l Lister[T]) appendMerged(out []T, index, value string) ([]T, error) {
	found, err := l.merged.byIndex(index, value)
	for _, o := range found {
		if _, isLocal := l.store.get(o.key); !isLocal {
			out = append(out, o.obj.(T))
		}
	}
	return out, err
}
