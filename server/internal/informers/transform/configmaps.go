package transform

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// ConfigMap returns a function that trims ConfigMaps: it keeps data and annotations of those with the given name only.
func ConfigMap(name string) func(runtime.Object) {
	return func(obj runtime.Object) {
		cm := obj.(*corev1.ConfigMap)
		cm.ManagedFields, cm.BinaryData = nil, nil
		if cm.Name != name {
			cm.Data = nil
			keepAnnotations(cm.Annotations, logicalcluster.AnnotationKey)
		}
	}
}

// Secret trims a Secret. It keeps no data, and of the annotations those that refer to a service account.
func Secret(obj runtime.Object) {
	s := obj.(*corev1.Secret)
	s.ManagedFields, s.Data, s.StringData = nil, nil, nil
	keepAnnotations(s.Annotations, logicalcluster.AnnotationKey, corev1.ServiceAccountNameKey, corev1.ServiceAccountUIDKey)
}

// keepAnnotations drops all annotations except those with the given keys.
func keepAnnotations(annotations map[string]string, keys ...string) {
	maps.DeleteFunc(annotations, func(key, _ string) bool { return !slices.Contains(keys, key) })
}
