package runner

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// NamespaceOfNamed returns a function that maps objects of one name to the key of their namespace, and all others to nothing.
func NamespaceOfNamed(name string) func(runtime.Object) []informers.Key {
	return func(obj runtime.Object) []informers.Key {
		key, err := informers.KeyOf(obj)
		if err != nil || key.Name != name {
			return nil
		}
		return []informers.Key{{Cluster: key.Cluster, Name: key.Namespace}}
	}
}

// IgnoreExistsOrTerminating returns nil for the errors of creating an object that exists already, or whose namespace or logical cluster is
// deleted or being deleted, and any other error as it is.
func IgnoreExistsOrTerminating(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		apierrors.HasStatusCause(err, logicalcluster.TerminatingCause) {
		return nil
	}
	return err
}

// IgnoreNotFound returns nil for the error of an object that does not exist, and any other error as it is.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Same returns NotFound if live, which is stored, is another object than read, which an informer or an earlier request had under the same
// name. Informers can be late: a decision about a deleted object must not be applied to the next one of its name.
func Same(live, read metav1.Object) error {
	if live.GetUID() != read.GetUID() {
		return apierrors.NewNotFound(schema.GroupResource{}, read.GetName())
	}
	return nil
}

// KeysOf returns the keys of objects.
func KeysOf[T metav1.Object](objects []T) []informers.Key {
	keys := make([]informers.Key, 0, len(objects))
	for _, obj := range objects {
		keys = append(keys, informers.Key{Cluster: logicalcluster.Of(obj), Namespace: obj.GetNamespace(), Name: obj.GetName()})
	}
	return keys
}

// AllOf returns a function that maps every object to the keys of all objects of i.
func AllOf(i *informers.Informer) func(runtime.Object) []informers.Key {
	return func(runtime.Object) []informers.Key {
		var keys []informers.Key
		for _, obj := range i.Indexer().List() {
			if key, err := informers.KeyOf(obj); err == nil {
				keys = append(keys, key)
			}
		}
		return keys
	}
}
