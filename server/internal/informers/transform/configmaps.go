package transform

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConfigMap returns a function that trims ConfigMaps: it keeps the data of those with the given name only. Every namespace has a ConfigMap
// of this name, with equal data.
func (t *Trimmer) ConfigMap(name string) func(runtime.Object) {
	return func(obj runtime.Object) {
		cm := obj.(*corev1.ConfigMap)
		t.meta(&cm.ObjectMeta)
		exact := make(map[string]string, len(cm.Annotations))
		for key, value := range cm.Annotations {
			exact[t.string(key)] = t.string(value)
		}
		cm.Annotations, cm.BinaryData = exact, nil
		if cm.Name != name {
			cm.Data = nil
		}
		cm.Data = t.shared(cm.Data)
	}
}
