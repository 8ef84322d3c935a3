package resources

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Mapped are objects that are stored in another form, or of which only some are visible.
type Mapped struct {
	// Stored are the underlying objects: the stored form of an object has the same name, namespace, labels and resourceVersion,
	// and all other fields that ToServed and ToStored do not change.
	Stored Objects
	// Of is the served resource, for errors.
	Of schema.GroupResource
	// Selected are the labels of all visible objects. Other objects are neither visible nor writable.
	Selected labels.Set
	// ToServed converts a stored object to the served form, and ToStored converts in the opposite direction. Both may modify their
	// argument. Nil means no conversion.
	ToServed, ToStored func(*unstructured.Unstructured) (*unstructured.Unstructured, error)
}

func (m Mapped) served(u *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
	if err != nil || m.ToServed == nil {
		return u, err
	}
	return m.ToServed(u)
}

func (m Mapped) toStored(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	u = u.DeepCopy()
	if m.ToStored != nil {
		var err error
		if u, err = m.ToStored(u); err != nil {
			return nil, err
		}
	}
	if len(m.Selected) > 0 {
		u.SetLabels(labels.Merge(u.GetLabels(), m.Selected))
	}
	return u, nil
}

// stored returns the stored form of an object, if the object is visible.
func (m Mapped) stored(ctx context.Context, name string, options metav1.GetOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	u, err := m.Stored.Get(ctx, name, options, subresources...)
	if apierrors.IsNotFound(err) || (err == nil && !m.Selected.AsSelector().Matches(labels.Set(u.GetLabels()))) {
		return nil, apierrors.NewNotFound(m.Of, name)
	}
	return u, err
}

// Get implements Objects.
func (m Mapped) Get(ctx context.Context, name string, options metav1.GetOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	return m.served(m.stored(ctx, name, options, subresources...))
}

// Create implements Objects.
func (m Mapped) Create(ctx context.Context, obj *unstructured.Unstructured, options metav1.CreateOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	u, err := m.toStored(obj)
	if err != nil {
		return nil, err
	}
	return m.served(m.Stored.Create(ctx, u, options, subresources...))
}

// Update implements Objects. It does not change invisible stored objects: the resourceVersion is that of a stored
// object that had the labels.
func (m Mapped) Update(ctx context.Context, obj *unstructured.Unstructured, options metav1.UpdateOptions,
	subresources ...string) (*unstructured.Unstructured, error) {
	if _, err := m.stored(ctx, obj.GetName(), metav1.GetOptions{}); err != nil {
		return nil, err
	}
	u, err := m.toStored(obj)
	if err != nil {
		return nil, err
	}
	return m.served(m.Stored.Update(ctx, u, options, subresources...))
}

// Delete implements Objects.
func (m Mapped) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error {
	if _, err := m.stored(ctx, name, metav1.GetOptions{}); err != nil {
		return err
	}
	return m.Stored.Delete(ctx, name, options, subresources...)
}

func (m Mapped) selecting(options metav1.ListOptions) metav1.ListOptions {
	var selectors []string
	for _, s := range []string{m.Selected.String(), options.LabelSelector} {
		if s != "" {
			selectors = append(selectors, s)
		}
	}
	options.LabelSelector = strings.Join(selectors, ",")
	return options
}

// List implements Objects.
func (m Mapped) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, err := m.Stored.List(ctx, m.selecting(options))
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		u, err := m.served(&list.Items[i], nil)
		if err != nil {
			return nil, err
		}
		list.Items[i] = *u
	}
	return list, nil
}

// Watch implements Objects.
func (m Mapped) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	watching, err := m.Stored.Watch(ctx, m.selecting(options))
	if err != nil {
		return nil, err
	}
	return converted(watching, func(u *unstructured.Unstructured) (runtime.Object, error) { return m.served(u, nil) }), nil
}

// converted returns a watch that delivers converted objects.
func converted(from watch.Interface, convert func(*unstructured.Unstructured) (runtime.Object, error)) watch.Interface {
	return watch.Filter(from, func(e watch.Event) (watch.Event, bool) {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			return e, true
		}
		obj, err := convert(u)
		if err != nil {
			status := apierrors.NewInternalError(err).Status()
			return watch.Event{Type: watch.Error, Object: &status}, true
		}
		return watch.Event{Type: e.Type, Object: obj}, true
	})
}
