package defaultcontent

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kcplane/kcp/server/internal/storage"
)

// Creator creates built-in objects through their registries.
type Creator interface {
	// Create stores an object, and Complete returns it as Create would store it.
	Create(ctx context.Context, obj runtime.Object) error
	Complete(ctx context.Context, obj runtime.Object) (runtime.Object, error)
}

// Storage stores complete built-in objects.
type Storage interface {
	// Create stores an object as it is. The object must equal what AsRead returns, except for strings, and times in whole seconds: the
	// informer gets a copy of it.
	Create(ctx context.Context, obj metav1.Object) error
	// AsRead returns a complete object as it is read after Create.
	AsRead(obj runtime.Object) (runtime.Object, error)
}

// templates are the objects of each default namespace, and the role binding of an owner, as they are read after their registries have
// stored them. They are the same in all logical clusters but for their UIDs and times, and the name of the owner. Defaulting, validating
// and converting them again takes twice as long as storing them.
type templates struct {
	mu sync.Mutex
	of map[string][]runtime.Object // by namespace; the role binding by its name
}

// content returns new objects of a default namespace, which are complete.
func (e *Writer) content(ctx context.Context, namespace string) ([]runtime.Object, error) {
	return e.templates.copied(namespace, func() ([]runtime.Object, error) { return e.complete(ctx, contentOf(namespace, e.CA)) })
}

// ownersBinding returns a new role binding, which is complete, for the owner that binding names.
func (e *Writer) ownersBinding(ctx context.Context, binding *rbacv1.ClusterRoleBinding) (runtime.Object, error) {
	made, err := e.templates.copied(binding.Name, func() ([]runtime.Object, error) {
		return e.complete(ctx, []runtime.Object{binding})
	})
	if err != nil {
		return nil, err
	}
	made[0].(*rbacv1.ClusterRoleBinding).Subjects = binding.Subjects
	return made[0], nil
}

// complete returns objects as they are read after they are created in the logical cluster of ctx.
func (e *Writer) complete(ctx context.Context, objs []runtime.Object) ([]runtime.Object, error) {
	var made []runtime.Object
	for _, obj := range objs {
		storage, err := e.storageOf(obj)
		if err != nil {
			return nil, err
		}
		complete, err := e.Creator.Complete(ctx, obj)
		if err == nil {
			complete, err = storage.AsRead(complete)
		}
		if err != nil {
			return nil, err
		}
		made = append(made, complete)
	}
	return made, nil
}

// copied returns new objects of the templates with a name, which complete makes if there are none.
func (t *templates) copied(name string, complete func() ([]runtime.Object, error)) ([]runtime.Object, error) {
	made, err := t.named(name, complete)
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
		created := storage.TimeAsRead(m.GetCreationTimestamp().Time)
		m.SetCreationTimestamp(created)
		fields := m.GetManagedFields()
		for f := range fields {
			fields[f].Time = &created
		}
	}
	return content, nil
}

func (t *templates) named(name string, complete func() ([]runtime.Object, error)) ([]runtime.Object, error) {
	t.mu.Lock()
	made, ok := t.of[name]
	t.mu.Unlock()
	if ok {
		return made, nil
	}
	made, err := complete()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string][]runtime.Object{}
	}
	t.of[name] = made
	return made, nil
}

// storageOf returns the storage of the type of obj.
func (e *Writer) storageOf(obj runtime.Object) (Storage, error) {
	storage, ok := e.Storages[reflect.TypeOf(obj)]
	if !ok {
		return nil, fmt.Errorf("there is no storage of %T", obj)
	}
	return storage, nil
}

// store stores a complete object.
func (e *Writer) store(ctx context.Context, obj runtime.Object) error {
	storage, err := e.storageOf(obj)
	if err != nil {
		return err
	}
	return storage.Create(ctx, obj.(metav1.Object))
}
