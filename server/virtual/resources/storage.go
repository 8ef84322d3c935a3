package resources

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// options is a generic.RESTOptionsGetter that uses Objects in place of etcd.
type options struct {
	objects func(ctx context.Context, namespace string) (Objects, error)
}

// Options returns a RESTOptionsGetter that uses the Objects of a namespace in place of etcd; an empty namespace means all
// namespaces, or a cluster-scoped resource.
func Options(objects func(ctx context.Context, namespace string) (Objects, error)) generic.RESTOptionsGetter {
	return options{objects}
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o options) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.Config{Codec: unstructured.UnstructuredJSONScheme}
	return generic.RESTOptions{
		StorageConfig: config.ForResource(resource), ResourcePrefix: "/" + resource.String(),
		DeleteCollectionWorkers: 1, EnableGarbageCollection: true,
		Decorator: func(config *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error), newFunc,
			_ func() runtime.Object,
			_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
			return &store{objects: o.objects, codec: config.Codec, newFunc: newFunc, prefix: prefix}, func() {}, nil
		},
	}, nil
}

// store is a storage.Interface over Objects.
type store struct {
	objects func(ctx context.Context, namespace string) (Objects, error)
	codec   runtime.Codec // converts between the version of Objects and that of a request
	newFunc func() runtime.Object
	prefix  string
}

var versioner = storage.APIObjectVersioner{}

// Versioner implements storage.Interface.
func (s *store) Versioner() storage.Versioner { return versioner }

// at returns the objects, and the name, for a key; the name is empty for a key of a collection.
func (s *store) at(ctx context.Context, key string, recursive bool) (Objects, string, error) {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(key, s.prefix), "/"), "/")
	namespace, name := "", ""
	if recursive {
		namespace = parts[0]
	} else {
		name = parts[len(parts)-1]
		namespace = strings.Join(parts[:len(parts)-1], "")
	}
	objects, err := s.objects(ctx, namespace)
	return objects, name, err
}

func (s *store) decode(from *unstructured.Unstructured, into runtime.Object) error {
	content, err := from.MarshalJSON()
	if err != nil {
		return err
	}
	_, _, err = s.codec.Decode(content, nil, into)
	return err
}

func (s *store) encode(obj runtime.Object) (*unstructured.Unstructured, []byte, error) {
	content, err := runtime.Encode(s.codec, obj)
	if err != nil {
		return nil, nil, err
	}
	u := &unstructured.Unstructured{}
	return u, content, u.UnmarshalJSON(content)
}

// interpret converts errors for a single object to the errors that the registry handles; other errors reach the
// client unchanged.
func interpret(err error, key string) error {
	switch {
	case apierrors.IsNotFound(err):
		return storage.NewKeyNotFoundError(key, 0)
	case apierrors.IsAlreadyExists(err):
		return storage.NewKeyExistsError(key, 0)
	case apierrors.IsConflict(err):
		return storage.NewResourceVersionConflictsError(key, 0)
	}
	return err
}

// Create implements storage.Interface.
func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	objects, _, err := s.at(ctx, key, false)
	if err != nil {
		return err
	}
	u, _, err := s.encode(obj)
	if err != nil {
		return err
	}
	made, err := objects.Create(ctx, u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return storage.NewKeyExistsError(key, 0)
	}
	if err != nil {
		return err
	}
	return s.decode(made, out)
}

// Get implements storage.Interface.
func (s *store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	objects, name, err := s.at(ctx, key, false)
	if err != nil {
		return err
	}
	found, err := objects.Get(ctx, name, metav1.GetOptions{ResourceVersion: opts.ResourceVersion})
	if apierrors.IsNotFound(err) && opts.IgnoreNotFound {
		return runtime.SetZeroValue(out)
	}
	if err != nil {
		return interpret(err, key)
	}
	return s.decode(found, out)
}

func listOptions(opts storage.ListOptions) metav1.ListOptions {
	p := opts.Predicate
	options := metav1.ListOptions{
		ResourceVersion: opts.ResourceVersion, ResourceVersionMatch: opts.ResourceVersionMatch, SendInitialEvents: opts.SendInitialEvents,
		Limit: p.Limit, Continue: p.Continue, AllowWatchBookmarks: p.AllowWatchBookmarks,
	}
	if p.Label != nil {
		options.LabelSelector = p.Label.String()
	}
	if p.Field != nil {
		options.FieldSelector = p.Field.String()
	}
	return options
}

// GetList implements storage.Interface.
func (s *store) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	objects, _, err := s.at(ctx, key, opts.Recursive)
	if err != nil {
		return err
	}
	found, err := objects.List(ctx, listOptions(opts))
	if err != nil {
		return err
	}
	list, ok := out.(*unstructured.UnstructuredList)
	if !ok {
		return fmt.Errorf("a list of %T", out)
	}
	for i := range found.Items {
		item := s.newFunc().(*unstructured.Unstructured)
		if err := s.decode(&found.Items[i], item); err != nil {
			return err
		}
		list.Items = append(list.Items, *item)
	}
	list.SetResourceVersion(found.GetResourceVersion())
	list.SetContinue(found.GetContinue())
	list.SetRemainingItemCount(found.GetRemainingItemCount())
	return nil
}

// Watch implements storage.Interface.
func (s *store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	objects, _, err := s.at(ctx, key, opts.Recursive)
	if err != nil {
		return nil, err
	}
	options := listOptions(opts)
	if options.SendInitialEvents != nil {
		options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan // the only allowed one, which is not passed on
	}
	watching, err := objects.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return converted(watching, func(u *unstructured.Unstructured) (runtime.Object, error) {
		obj := s.newFunc()
		return obj, s.decode(u, obj)
	}), nil
}

// current returns the current state of an object, and its resource version.
func (s *store) current(ctx context.Context, objects Objects, key, name string) (runtime.Object, string, error) {
	u, err := objects.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, "", interpret(err, key)
	}
	obj := s.newFunc()
	return obj, u.GetResourceVersion(), s.decode(u, obj)
}

// Delete implements storage.Interface.
func (s *store) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	objects, name, err := s.at(ctx, key, false)
	if err != nil {
		return err
	}
	for {
		obj, version, err := s.current(ctx, objects, key, name)
		if err != nil {
			return err
		}
		if err := preconditions.Check(key, obj); err != nil {
			return err
		}
		if err := validate(ctx, obj); err != nil {
			return err
		}
		err = objects.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
		if apierrors.IsConflict(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return interpret(err, key)
		}
		obj.(*unstructured.Unstructured).DeepCopyInto(out.(*unstructured.Unstructured))
		return nil
	}
}

// GuaranteedUpdate implements storage.Interface.
func (s *store) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object) error {
	objects, name, err := s.at(ctx, key, false)
	if err != nil {
		return err
	}
	for {
		obj, version, err := s.current(ctx, objects, key, name)
		missing := storage.IsNotFound(err)
		if missing && ignoreNotFound {
			obj, err = s.newFunc(), nil
		}
		if err != nil {
			return err
		}
		if err := preconditions.Check(key, obj); err != nil {
			return err
		}
		parsed, _ := strconv.ParseUint(version, 10, 64) // empty for a missing object
		changed, _, err := tryUpdate(obj.DeepCopyObject(), storage.ResponseMeta{ResourceVersion: parsed})
		if err != nil {
			return err
		}
		if missing {
			if err := s.Create(ctx, key, changed, out, 0); !storage.IsExist(err) {
				return err
			}
			continue
		}
		written, err := s.write(ctx, objects, obj, changed, version)
		if apierrors.IsConflict(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return interpret(err, key)
		}
		return s.decode(written, out)
	}
}

// write replaces old, at a version, by changed.
func (s *store) write(ctx context.Context, objects Objects, old, changed runtime.Object,
	version string) (*unstructured.Unstructured, error) {
	before, beforeJSON, err := s.encode(old)
	if err != nil {
		return nil, err
	}
	after, _, err := s.encode(changed)
	if err != nil {
		return nil, err
	}
	after.SetResourceVersion(version)
	afterJSON, err := runtime.Encode(unstructured.UnstructuredJSONScheme, after)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(beforeJSON, afterJSON) {
		return after, nil
	}
	if before.GetDeletionTimestamp() == nil && after.GetDeletionTimestamp() != nil { // which cannot be set by an update
		return s.mark(ctx, objects, before, after, version)
	}
	if info, ok := request.RequestInfoFrom(ctx); ok && info.Subresource == "status" {
		return objects.Update(ctx, after, metav1.UpdateOptions{}, "status")
	}
	return objects.Update(ctx, after, metav1.UpdateOptions{})
}

// mark deletes an object that still has finalizers.
func (s *store) mark(ctx context.Context, objects Objects, before, after *unstructured.Unstructured,
	version string) (*unstructured.Unstructured, error) {
	policy := metav1.DeletePropagationBackground
	for finalizer, wanted := range map[string]metav1.DeletionPropagation{
		metav1.FinalizerOrphanDependents: metav1.DeletePropagationOrphan, metav1.FinalizerDeleteDependents: metav1.DeletePropagationForeground,
	} {
		if slices.Contains(after.GetFinalizers(), finalizer) && !slices.Contains(before.GetFinalizers(), finalizer) {
			policy = wanted
		}
	}
	err := objects.Delete(ctx, after.GetName(),
		metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	if err != nil {
		return nil, err
	}
	marked, err := objects.Get(ctx, after.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return after, nil
	}
	return marked, err
}

// Stats implements storage.Interface: objects are not counted.
func (s *store) Stats(context.Context) (storage.Stats, error) { return storage.Stats{}, nil }

// ReadinessCheck implements storage.Interface.
func (s *store) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface: watches have the bookmarks of Objects.
func (s *store) RequestWatchProgress(context.Context) error { return nil }

// GetCurrentResourceVersion implements storage.Interface, for caches, which this storage does not have.
func (s *store) GetCurrentResourceVersion(context.Context) (uint64, error) {
	return 0, apierrors.NewMethodNotSupported(schema.GroupResource{}, "get the current resource version")
}

// EnableResourceSizeEstimation implements storage.Interface.
func (s *store) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// CompactRevision implements storage.Interface: it is not known.
func (s *store) CompactRevision() int64 { return 0 }
