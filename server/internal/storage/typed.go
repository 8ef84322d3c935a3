package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Typed stores a custom resource as its Go type, for the server itself: without a request, its handlers and its
// admission. Its objects must be valid and complete.
type Typed struct {
	storage  storage.Interface
	resource schema.GroupResource
	prefix   string
	newList  func() runtime.Object
	asked    bool // whether pages have the number of objects that callers ask for
	// written are objects on their way from a write to the informer, and kind is the kind of objects that are read.
	written *handover
	kind    schema.GroupVersionKind
}

// Typed returns the storage of a custom resource whose Go types are in scheme. kind and listKind are those types.
func (b *Backend) Typed(base generic.RESTOptionsGetter, resource schema.GroupVersionResource, scheme *runtime.Scheme, kind,
	listKind string) (*Typed, error) {
	instance := func(kind string) func() runtime.Object {
		return func() runtime.Object {
			obj, _ := scheme.New(resource.GroupVersion().WithKind(kind)) // called below
			return obj
		}
	}
	t := &Typed{resource: resource.GroupResource(), newList: instance(listKind)}
	newFunc := instance(kind)
	if newFunc() == nil || t.newList() == nil {
		return nil, fmt.Errorf("storage of %s: no Go types for %s and %s", resource, kind, listKind)
	}
	options, err := b.Custom(base).GetRESTOptions(resource.GroupResource(), newFunc())
	if err != nil {
		return nil, err
	}
	plainJSON := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{})
	codec := &typedCodec{Codec: runtime.NewCodec(plainJSON, plainJSON), kind: resource.GroupVersion().WithKind(kind), newFunc: newFunc}
	options.StorageConfig.Codec = readCodec{codec}
	t.prefix, t.written, t.kind = options.ResourcePrefix, &codec.written, codec.kind
	g := &guard{backend: b, resource: resource.GroupResource(), codec: options.StorageConfig.Codec, newFunc: newFunc, kind: codec.kind}
	s, _, err := b.open(options.StorageConfig, t.prefix, g, t.newList)
	if err != nil {
		return nil, err
	}
	s.unshared = true // informers keep the objects
	s.own = true
	t.storage = s
	b.typed.Store(resource.GroupResource(), codec)
	b.addReader(t.prefix, g)
	return t, nil
}

// typedCodec decodes objects of one kind: upstream's codec would parse each object a second time to determine its
// kind.
type typedCodec struct {
	runtime.Codec
	kind    schema.GroupVersionKind
	newFunc func() runtime.Object
	// written are objects that storable has decoded, and those of CreateAsRead, until the informer reads them.
	written handover
}

// decoding accepts the same JSON as Kubernetes' own decoder, which, unlike encoding/json, is case-sensitive. It takes half the time.
var decoding = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(), jsonv2.MatchCaseInsensitiveNames(false))

// Decode implements runtime.Decoder.
func (c *typedCodec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	if into == nil { // for a watch; the caller owns the result
		if obj := c.written.take(data); obj != nil {
			return obj, &c.kind, nil
		}
		into = c.newFunc()
	}
	if kind, err := c.decode(data, into); err != nil {
		return nil, kind, err
	}
	return into, &c.kind, nil
}

// decode decodes data into an empty object. It returns the kind of data if that is another one.
func (c *typedCodec) decode(data []byte, into runtime.Object) (*schema.GroupVersionKind, error) {
	if err := jsonv2.Unmarshal(data, into, decoding); err != nil {
		return nil, err
	}
	if kind := into.GetObjectKind().GroupVersionKind(); kind != c.kind {
		return &kind, fmt.Errorf("expected a stored %s, got %s", c.kind.Kind, kind)
	}
	return nil, nil
}

// storable returns an error if the server could not read its own object after data is stored.
func (c *typedCodec) storable(data []byte) error {
	obj := c.newFunc()
	if _, err := c.decode(data, obj); err != nil {
		return err
	}
	if !atTheEndOfTime(data) {
		c.written.give(data, obj)
		return nil
	}
	again, err := runtime.Encode(c.Codec, obj)
	if err == nil {
		_, err = c.decode(again, c.newFunc())
	}
	return err
}

// atTheEndOfTime reports whether data may contain a time that RFC 3339 can write in some time zones, but not in UTC, in which times are
// stored.
func atTheEndOfTime(data []byte) bool {
	return bytes.Contains(data, []byte("9999-12-31")) || bytes.Contains(data, []byte("0000-01-01"))
}

func (t *Typed) key(name string) string { return t.prefix + "/" + name }

// Create stores obj in the cluster of ctx.
func (t *Typed) Create(ctx context.Context, name string, obj runtime.Object) error {
	return t.api(t.storage.Create(ctx, t.key(name), obj, nil, 0), name)
}

// TimeAsRead returns a time as it is read after it was stored.
func TimeAsRead(t time.Time) metav1.Time { return metav1.Unix(t.Unix(), 0) }

// CreateAsRead is Create for an object that equals what reading it returns: its times are whole seconds in the local time zone, and what is
// empty is nil. The informer gets a copy of obj, instead of decoding what is stored.
func (t *Typed) CreateAsRead(ctx context.Context, name string, obj runtime.Object) error {
	return t.Create(context.WithValue(ctx, createdKey{}, created{t.written, obj, t.kind}), name, obj)
}

// Get reads the current state of an object of the cluster of ctx from etcd into out.
func (t *Typed) Get(ctx context.Context, name string, out runtime.Object) error {
	return t.api(t.storage.Get(ctx, t.key(name), storage.GetOptions{}, out), name)
}

// Find reads the current state of an object of the cluster of ctx from etcd into out, as lists of all clusters have it: an object that
// cannot be decoded, or belongs to another key, does not exist.
func (t *Typed) Find(ctx context.Context, namespace, name string, out runtime.Object) (found bool, err error) {
	err = t.Get(asListed(ctx), inNamespace(namespace, name), out)
	if apierrors.IsNotFound(err) || IsUnreadable(err) {
		return false, nil
	}
	return err == nil, err
}

// Update changes an object of the cluster of ctx. change receives its current state in etcd, and may be called more
// than once; if it changes nothing, nothing is written. into is an empty object of the type, which receives the
// result.
func (t *Typed) Update(ctx context.Context, name string, into runtime.Object, change func(obj runtime.Object) error) error {
	return t.Revise(ctx, name, nil, into, change)
}

// Revise is Update for an object whose state the caller knows, which it may change: the object is read only if known is not its current
// state.
func (t *Typed) Revise(ctx context.Context, name string, known, into runtime.Object, change func(obj runtime.Object) error) error {
	return t.api(t.storage.GuaranteedUpdate(ctx, t.key(name), into, false, nil,
		storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
			return obj, change(obj)
		}), known), name)
}

type replaceKey struct{}

func replaces(ctx context.Context) bool { return ctx.Value(replaceKey{}) != nil }

// Replace stores obj in the cluster of ctx in place of an unreadable object. It fails with a conflict if there is none. into is an
// empty object of the type, which receives the result.
func (t *Typed) Replace(ctx context.Context, name string, obj, into runtime.Object) error {
	ctx = context.WithValue(ctx, replaceKey{}, true)
	return t.Update(ctx, name, into, func(live runtime.Object) error {
		if !isLeftOut(live) {
			return apierrors.NewConflict(t.resource, name, errors.New("the stored object is readable"))
		}
		set(live, obj)
		return nil
	})
}

// Delete removes an object of the cluster of ctx, whatever its finalizers, if allowed returns no error for its current state
// in etcd.
func (t *Typed) Delete(ctx context.Context, name string, into runtime.Object, allowed func(obj runtime.Object) error) error {
	validate := func(_ context.Context, obj runtime.Object) error { return allowed(obj) }
	return t.api(t.storage.Delete(ctx, t.key(name), into, nil, validate, nil, storage.DeleteOptions{}), name)
}

// Release removes a finalizer from an object of the cluster of ctx that is being deleted, and with its last finalizer the object.
// empty returns an empty object of the type.
func (t *Typed) Release(ctx context.Context, name string, uid types.UID, finalizer string, empty func() runtime.Object) error {
	left := 0
	err := t.Update(ctx, name, empty(), func(obj runtime.Object) error {
		live, err := t.terminating(obj, name, uid)
		if err == nil {
			live.SetFinalizers(slices.DeleteFunc(live.GetFinalizers(), func(f string) bool { return f == finalizer }))
			left = len(live.GetFinalizers())
		}
		return err
	})
	if err == nil && left == 0 {
		err = t.Delete(ctx, name, empty(), func(obj runtime.Object) error {
			live, err := t.terminating(obj, name, uid)
			if err == nil && len(live.GetFinalizers()) > 0 {
				err = apierrors.NewConflict(t.resource, name, errors.New("the object has other finalizers"))
			}
			return err
		})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// terminating returns the object if it is the one that is being deleted.
func (t *Typed) terminating(obj runtime.Object, name string, uid types.UID) (metav1.Object, error) {
	live, err := meta.Accessor(obj)
	if err == nil && (live.GetUID() != uid || live.GetDeletionTimestamp() == nil) {
		err = apierrors.NewNotFound(t.resource, name) // another object has its name
	}
	return live, err
}

// api converts errors of storage to errors of the API.
func (t *Typed) api(err error, name string) error {
	switch {
	case err == nil:
		return nil
	case storage.IsNotFound(err):
		return apierrors.NewNotFound(t.resource, name)
	case storage.IsConflict(err):
		return apierrors.NewConflict(t.resource, name, err)
	case storage.IsExist(err):
		return apierrors.NewAlreadyExists(t.resource, name)
	}
	return err
}

// ListWithContext reads a page of the objects of all clusters.
func (t *Typed) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list := t.newList()
	err := t.storage.GetList(logicalcluster.WithWildcard(ctx), t.prefix, t.options(options), list)
	return list, err
}

// ListIn reads the objects of one cluster.
func (t *Typed) ListIn(ctx context.Context, cluster logicalcluster.Name, options metav1.ListOptions) (runtime.Object, error) {
	list := t.newList()
	err := t.storage.GetList(logicalcluster.WithName(ctx, cluster), t.prefix, t.options(options), list)
	return list, err
}

// WatchIn watches the objects of one cluster.
func (t *Typed) WatchIn(ctx context.Context, cluster logicalcluster.Name, options metav1.ListOptions) (watch.Interface, error) {
	return t.storage.Watch(logicalcluster.WithName(ctx, cluster), t.prefix, t.options(options))
}

// WatchWithContext watches the objects of all clusters.
func (t *Typed) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return t.storage.Watch(logicalcluster.WithWildcard(ctx), t.prefix, t.options(options))
}

// List is ListWithContext.
func (t *Typed) List(options metav1.ListOptions) (runtime.Object, error) {
	return t.ListWithContext(context.Background(), options)
}

// Watch is WatchWithContext.
func (t *Typed) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return t.WatchWithContext(context.Background(), options)
}

// leastPage is the minimum number of objects in a page: etcd counts the remaining keys for every page, so a million
// objects must not have many pages. Pages of built-in types keep the limit of the caller (asked), because their objects can be larger.
const leastPage = 20_000

func (t *Typed) options(options metav1.ListOptions) storage.ListOptions {
	if options.Limit > 0 && !t.asked {
		options.Limit = max(options.Limit, leastPage)
	}
	return storage.ListOptions{
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch, Recursive: true,
		Predicate: storage.SelectionPredicate{
			Label: labels.Everything(), Field: fields.Everything(), Limit: options.Limit, Continue: options.Continue,
			AllowWatchBookmarks: options.AllowWatchBookmarks,
			GetAttrs:            func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil },
		},
	}
}
