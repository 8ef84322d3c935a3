package defaultcontent

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Creator creates built-in objects through their registries.
type Creator interface {
	// Create stores an object, and Complete returns it as Create would store it.
	Create(ctx context.Context, obj runtime.Object) error
	Complete(ctx context.Context, obj runtime.Object) (runtime.Object, error)
}

// Storage stores complete built-in objects.
type Storage interface {
	Create(ctx context.Context, obj metav1.Object) error
}

// templates are the objects of each default namespace as their registries store them. They are the same in all logical clusters but for
// their UIDs and times. Defaulting, validating and converting them again takes twice as long as storing them.
type templates struct {
	mu sync.Mutex
	of map[string][]runtime.Object // by namespace
}

// content returns new objects of a default namespace, which are complete.
func (t *templates) content(ctx context.Context, namespace string, ca []byte, registries Creator) ([]runtime.Object, error) {
	made, err := t.complete(ctx, namespace, ca, registries)
	if err != nil {
		return nil, err
	}
	content := make([]runtime.Object, len(made))
	for i, template := range made {
		content[i] = template.DeepCopyObject()
		m, err := meta.Accessor(content[i])
		if err != nil {
			return nil, err
		}
		rest.FillObjectMetaSystemFields(m)
		created := m.GetCreationTimestamp()
		fields := m.GetManagedFields()
		for f := range fields {
			fields[f].Time = &created
		}
	}
	return content, nil
}

// complete returns the templates of a namespace, which it makes in the logical cluster of ctx if there are none.
func (t *templates) complete(ctx context.Context, namespace string, ca []byte, registries Creator) ([]runtime.Object, error) {
	t.mu.Lock()
	made, ok := t.of[namespace]
	t.mu.Unlock()
	if ok {
		return made, nil
	}
	for _, obj := range contentOf(namespace, ca) {
		template, err := registries.Complete(ctx, obj)
		if err != nil {
			return nil, err
		}
		made = append(made, template)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string][]runtime.Object{}
	}
	t.of[namespace] = made
	return made, nil
}

// store stores a complete object.
func (e *Writer) store(ctx context.Context, obj runtime.Object) error {
	storage, ok := e.Storages[reflect.TypeOf(obj)]
	if !ok {
		return fmt.Errorf("there is no storage of %T", obj)
	}
	return storage.Create(ctx, obj.(metav1.Object))
}
