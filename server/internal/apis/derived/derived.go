// Package derived adds read-only objects, which the server computes when they are read, to the stored objects of a logical
// cluster. Derived objects are not stored. A stored object of the same name takes precedence.
package derived

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Source computes the derived objects of a resource. The cluster and the namespace are those of the context; no namespace means
// all. Each call returns objects that the caller may change.
type Source interface {
	// Get returns an object, or nil if no derived object has that name.
	Get(ctx context.Context, name string) (runtime.Object, error)
	// List returns all objects.
	List(ctx context.Context) ([]runtime.Object, error)
}

// Stored is the storage of the other objects of the resource.
type Stored interface {
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.CreaterUpdater
	rest.GracefulDeleter
}

// Storage adds the objects of a Source to those of Stored. Requests for all clusters, and those of StoredOnly, see
// only stored objects.
type Storage struct {
	Stored   Stored
	Source   Source
	Resource schema.GroupResource
	// Reason is the end of the error message for writing a derived object.
	Reason string
	// Replaceable objects can be created: the stored object then takes precedence.
	Replaceable bool
	// Append adds an object to a list.
	Append func(list, obj runtime.Object)
}

// Get implements rest.Getter.
func (s *Storage) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	stored, err := s.Stored.Get(ctx, name, options)
	if !apierrors.IsNotFound(err) || !sees(ctx) {
		return stored, err
	}
	obj, sourceErr := s.Source.Get(ctx, name)
	if sourceErr != nil {
		return nil, sourceErr
	}
	if obj == nil {
		return stored, err
	}
	now, sourceErr := s.now(ctx, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	if sourceErr != nil {
		return nil, sourceErr
	}
	return obj, setVersion(obj, now)
}

// List implements rest.Lister. Derived objects are on the first page.
func (s *Storage) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	if options.Continue != "" || !sees(ctx) {
		return s.Stored.List(ctx, options)
	}
	objects, err := s.selected(ctx, options)
	if err != nil {
		return nil, err
	}
	if n := int64(len(objects)); n > 0 && options.Limit > n {
		options = options.DeepCopy()
		options.Limit -= n
	}
	list, err := s.Stored.List(ctx, options)
	if err != nil || len(objects) == 0 {
		return list, err
	}
	stored := map[types.NamespacedName]bool{}
	if err := meta.EachListItem(list, func(obj runtime.Object) error {
		m, err := meta.Accessor(obj)
		if err == nil {
			stored[types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}] = true
		}
		return err
	}); err != nil {
		return nil, err
	}
	version, err := meta.NewAccessor().ResourceVersion(list)
	if err != nil {
		return nil, err
	}
	for _, obj := range objects {
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		if !stored[types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}] {
			m.SetResourceVersion(version)
			s.Append(list, obj)
		}
	}
	return list, nil
}

// Watch implements rest.Watcher. Derived objects are initial events; later changes of them produce no events.
func (s *Storage) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if options == nil || !sees(ctx) || !wantsInitialEvents(options) {
		return s.Stored.Watch(ctx, options)
	}
	objects, err := s.selected(ctx, options)
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return s.Stored.Watch(ctx, options)
	}
	now, err := s.now(ctx, nil)
	if err != nil {
		return nil, err
	}
	var initial []watch.Event
	for _, obj := range objects {
		if err := setVersion(obj, now); err != nil {
			return nil, err
		}
		initial = append(initial, watch.Event{Type: watch.Added, Object: obj})
	}
	stored, err := s.Stored.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return after(initial, stored), nil
}

// Create implements rest.Creater.
func (s *Storage) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions) (runtime.Object, error) {
	if m, err := meta.Accessor(obj); err == nil && !s.Replaceable && m.GetName() != "" {
		derived, err := s.Source.Get(ctx, m.GetName())
		if err != nil {
			return nil, err
		}
		if derived != nil {
			return nil, apierrors.NewAlreadyExists(s.Resource, m.GetName())
		}
	}
	return s.Stored.Create(ctx, obj, validate, options)
}

// Update implements rest.Updater.
func (s *Storage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc,
	forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	if err := s.CheckWritable(ctx, name); err != nil {
		return nil, false, err
	}
	return s.Stored.Update(ctx, name, info, create, update, forceAllowCreate, options)
}

// Delete implements rest.GracefulDeleter.
func (s *Storage) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc,
	options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	if err := s.CheckWritable(ctx, name); err != nil {
		return nil, false, err
	}
	return s.Stored.Delete(ctx, name, validate, options)
}

// CheckWritable returns an error if an object cannot be updated or deleted because it is derived. The names of derived objects that
// are not Replaceable stay reserved for requests that do not see derived objects, because an update can create an object.
func (s *Storage) CheckWritable(ctx context.Context, name string) error {
	if cluster, ok := logicalcluster.From(ctx); !ok || cluster.Wildcard || (s.Replaceable && !sees(ctx)) {
		return nil
	}
	obj, err := s.Source.Get(ctx, name)
	if err != nil || obj == nil {
		return err
	}
	if _, err := s.Stored.Get(ctx, name, &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	return apierrors.NewForbidden(s.Resource, name, fmt.Errorf("it is read-only: %s", s.Reason))
}

// selected returns the derived objects that options select.
func (s *Storage) selected(ctx context.Context, options *metainternalversion.ListOptions) ([]runtime.Object, error) {
	byLabel, byField := options.LabelSelector, options.FieldSelector
	if byLabel == nil {
		byLabel = labels.Everything()
	}
	if byField == nil {
		byField = fields.Everything()
	}
	all, err := s.Source.List(ctx)
	if err != nil {
		return nil, err
	}
	var selected []runtime.Object
	for _, obj := range all {
		m, err := meta.Accessor(obj)
		if err != nil {
			return nil, err
		}
		if byLabel.Matches(labels.Set(m.GetLabels())) &&
			byField.Matches(fields.Set{metav1.ObjectNameField: m.GetName(), "metadata.namespace": m.GetNamespace()}) {
			selected = append(selected, obj)
		}
	}
	return selected, nil
}

// now returns the resource version of the storage. A selector for one name limits the read to one key.
func (s *Storage) now(ctx context.Context, selector fields.Selector) (string, error) {
	list, err := s.Stored.List(ctx, &metainternalversion.ListOptions{Limit: 1, FieldSelector: selector})
	if err != nil {
		return "", err
	}
	return meta.NewAccessor().ResourceVersion(list)
}

// Identify sets metadata that distinguishes obj from objects of other clusters and of former clusters. It is derived from an object
// with the UID of.
func Identify(obj metav1.Object, cluster logicalcluster.Name, resource schema.GroupResource, of types.UID, created metav1.Time) {
	name := fmt.Sprintf("%s|%s|%s|%s/%s", of, cluster, resource, obj.GetNamespace(), obj.GetName())
	obj.SetUID(types.UID(uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)).String()))
	obj.SetCreationTimestamp(created)
	annotations := map[string]string{logicalcluster.AnnotationKey: string(cluster)}
	for key, value := range obj.GetAnnotations() {
		annotations[key] = value
	}
	obj.SetAnnotations(annotations)
}

type storedOnlyKey struct{}

// StoredOnly returns a context whose requests see no derived objects.
func StoredOnly(ctx context.Context) context.Context {
	return context.WithValue(ctx, storedOnlyKey{}, true)
}

// sees reports whether requests of ctx see derived objects.
func sees(ctx context.Context) bool {
	cluster, ok := logicalcluster.From(ctx)
	return ok && !cluster.Wildcard && ctx.Value(storedOnlyKey{}) == nil
}

// wantsInitialEvents reports whether a watch begins with the existing objects.
func wantsInitialEvents(options *metainternalversion.ListOptions) bool {
	if options.SendInitialEvents != nil {
		return *options.SendInitialEvents
	}
	version, err := strconv.ParseUint(options.ResourceVersion, 10, 64)
	return options.ResourceVersion == "" || (err == nil && version == 0)
}

func setVersion(obj runtime.Object, version string) error {
	return meta.NewAccessor().SetResourceVersion(obj, version)
}

// prefixed is a watch with additional events at the beginning.
type prefixed struct {
	watch.Interface
	events chan watch.Event
	stop   func()
}

// after returns a watch with the events of initial and then those of rest. Its goroutine ends with rest, or when it is stopped.
func after(initial []watch.Event, rest watch.Interface) watch.Interface {
	stopped := make(chan struct{})
	p := &prefixed{Interface: rest, events: make(chan watch.Event), stop: sync.OnceFunc(func() { close(stopped); rest.Stop() })}
	go func() {
		defer close(p.events)
		for _, event := range initial {
			select {
			case p.events <- event:
			case <-stopped:
				return
			}
		}
		for event := range rest.ResultChan() {
			select {
			case p.events <- event:
			case <-stopped:
				return
			}
		}
	}()
	return p
}

// ResultChan implements watch.Interface.
func (p *prefixed) ResultChan() <-chan watch.Event { return p.events }

// Stop implements watch.Interface.
func (p *prefixed) Stop() { p.stop() }
