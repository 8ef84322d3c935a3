package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/informers"
)

// NamespaceOfNamed maps objects of one name to the namespace that they are in, and all others to nothing.
func NamespaceOfNamed(name string) func(runtime.Object) []informers.Key {
	return func(obj runtime.Object) []informers.Key {
		key, err := informers.KeyOf(obj)
		if err != nil || key.Name != name {
			return nil
		}
		return []informers.Key{{Cluster: key.Cluster, Name: key.Namespace}}
	}
}

// IgnoreGoing drops the errors of creating an object that exists already, or in a namespace that is gone or going.
func IgnoreGoing(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// Seconds returns n seconds.
func Seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
