package storage

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
)

// Source has the stored objects of a built-in type of all clusters, for the server itself: without a request, which would encode and decode
// each object once more. It implements cache.ListerWatcher.
type Source struct {
	typed *Typed
	codec runtime.Codec
}

// Source returns the source of a resource. The objects have the Go type of kind in an external version of resource, which scheme and codecs
// know. base must be a result of BuiltIn.
func (b *Backend) Source(base generic.RESTOptionsGetter, resource schema.GroupVersionResource, kind string, scheme *runtime.Scheme,
	codecs serializer.CodecFactory) (*Source, error) {
	instance := func(version schema.GroupVersion, kind string) func() runtime.Object {
		return func() runtime.Object {
			obj, _ := scheme.New(version.WithKind(kind)) // called below
			return obj
		}
	}
	internal := schema.GroupVersion{Group: resource.Group, Version: runtime.APIVersionInternal}
	newInternal, newFunc := instance(internal, kind), instance(resource.GroupVersion(), kind)
	t := &Typed{resource: resource.GroupResource(), newList: instance(resource.GroupVersion(), kind+"List"), asked: true}
	if newInternal() == nil || newFunc() == nil || t.newList() == nil {
		return nil, fmt.Errorf("storage of %s: no Go types for %s", resource, kind)
	}
	options, err := base.GetRESTOptions(resource.GroupResource(), newInternal())
	if err != nil {
		return nil, err
	}
	external := &externalCodec{
		Codec: options.StorageConfig.Codec, plain: codecs.UniversalDeserializer(), scheme: scheme, internal: internal, newFunc: newFunc,
	}
	codec := readCodec{external}
	options.StorageConfig.Codec = codec
	t.prefix, t.written = options.ResourcePrefix, &external.written
	g := &guard{backend: b, resource: resource.GroupResource(), codec: codec, newFunc: newFunc, below: t.prefix + "/"}
	s, _, err := b.open(options.StorageConfig, t.prefix, g, t.newList)
	if err != nil {
		return nil, err
	}
	s.unshared, s.own = true, true // as for Typed
	t.storage = s
	return &Source{t, codec}, nil
}

// List implements cache.Lister.
func (s *Source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.typed.List(options)
}

// Watch implements cache.Watcher.
func (s *Source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.typed.Watch(options)
}

// ListWithContext reads a page of the objects of all clusters.
func (s *Source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return s.typed.ListWithContext(ctx, options)
}

// WatchWithContext watches the objects of all clusters.
func (s *Source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return s.typed.WatchWithContext(ctx, options)
}

// AsRead returns an object that the registry of its type would store, as it is read afterwards.
func (s *Source) AsRead(obj runtime.Object) (runtime.Object, error) {
	data, err := runtime.Encode(s.codec, obj.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	return runtime.Decode(s.codec, data)
}

// Find is Typed.Find.
func (s *Source) Find(ctx context.Context, namespace, name string, out runtime.Object) (found bool, err error) {
	return s.typed.Find(ctx, namespace, name, out)
}

// inNamespace returns the part of a key behind the cluster.
func inNamespace(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Create stores obj in the cluster of ctx as it is: it must be what AsRead returns. See Typed.CreateAsRead.
func (s *Source) Create(ctx context.Context, obj metav1.Object) error {
	return s.typed.CreateAsRead(ctx, inNamespace(obj.GetNamespace(), obj.GetName()), obj.(runtime.Object))
}

// externalCodec decodes stored objects of a built-in type to one external version. Upstream's codec of a storage decodes them to the
// internal version, which informers do not keep.
type externalCodec struct {
	runtime.Codec
	plain    runtime.Decoder
	scheme   *runtime.Scheme
	internal schema.GroupVersion
	newFunc  func() runtime.Object
	// written are objects of Create, until the informer reads them.
	written handover
}

// Decode implements runtime.Decoder. The object has no kind, as those that clients decode.
func (c *externalCodec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	if into == nil { // for a watch; the caller owns the result
		if obj := c.written.take(data); obj != nil {
			return obj, &schema.GroupVersionKind{}, nil
		}
		into = c.newFunc()
	}
	obj, kind, err := c.plain.Decode(data, nil, into)
	if err != nil {
		return nil, kind, err
	}
	c.scheme.Default(obj)
	if obj != into { // it is stored in another version
		hub, err := c.scheme.ConvertToVersion(obj, c.internal)
		if err == nil {
			err = c.scheme.Convert(hub, into, nil)
		}
		if err != nil {
			return nil, kind, err
		}
	}
	into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return into, kind, nil
}
