package cacheserver

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	kcpstorage "github.com/kcplane/kcp/server/internal/storage"
)

const (
	// firstPage and maxPage are the numbers of objects that a list reads first, and returns at most.
	firstPage, maxPage = 8, 500
	// maxPageBytes is the approximate memory of the objects of a list after which the list ends with a continue token.
	maxPageBytes = 8 << 20
)

// resource is the storage of one resource, for the place in the context.
type resource struct {
	storage storage.Interface
	gvr     schema.GroupVersionResource
	// kind of the objects; empty for cached resources, which have the kind that their shard writes.
	kind     string
	identity string
	limits   *limits
	scope    *handlers.RequestScope
}

func newResource(s storage.Interface, gvr schema.GroupVersionResource, kind, identity string, l *limits) *resource {
	r := &resource{storage: s, gvr: gvr, kind: kind, identity: identity, limits: l}
	r.scope = &handlers.RequestScope{
		Namer: handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: true}, Serializer: newEncoding(),
		ParameterCodec: runtime.NewParameterCodec(scheme), Creater: scheme, Typer: scheme, Defaulter: scheme, Convertor: selectors{scheme},
		TableConvertor: rest.NewDefaultTableConvertor(r.gvr.GroupResource()),
		Resource:       gvr, Kind: gvr.GroupVersion().WithKind(kind), HubGroupVersion: gvr.GroupVersion(),
		MetaGroupVersion: metav1.SchemeGroupVersion, MaxRequestBodyBytes: maxBody,
	}
	return r
}

// selectors accepts the field selectors that every resource has.
type selectors struct{ runtime.ObjectConvertor }

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (selectors) ConvertFieldLabel(_ schema.GroupVersionKind, field, value string) (string, string, error) {
	return runtime.DefaultMetaV1FieldSelectorConversion(field, value)
}

// key returns the key of an object for the storage, or of a collection if name is empty.
func key(ctx context.Context, name string) string {
	result := ""
	if namespace := request.NamespaceValue(ctx); namespace != "" {
		result += "/" + namespace
	}
	if name != "" {
		result += "/" + name
	}
	return result
}

// api converts errors of the storage to errors of the API.
func (r *resource) api(err error, name string) error {
	of := r.gvr.GroupResource()
	switch {
	case err == nil:
		return nil
	case storage.IsNotFound(err):
		return apierrors.NewNotFound(of, name)
	case storage.IsExist(err):
		return apierrors.NewAlreadyExists(of, name)
	case storage.IsConflict(err), storage.IsInvalidObj(err):
		return apierrors.NewConflict(of, name, err)
	}
	return err
}

// New implements rest.Storage.
func (r *resource) New() runtime.Object { return &unstructured.Unstructured{} }

// NewList implements rest.Lister.
func (r *resource) NewList() runtime.Object {
	kind := "List"
	if r.kind != "" {
		kind = r.kind + "List"
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(r.gvr.GroupVersion().WithKind(kind))
	return list
}

// ConvertToTable implements rest.TableConvertor.
func (r *resource) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.scope.TableConvertor.ConvertToTable(ctx, obj, options)
}

// Get implements rest.Getter.
func (r *resource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	out := &unstructured.Unstructured{}
	err := r.storage.Get(ctx, key(ctx, name), storage.GetOptions{ResourceVersion: options.ResourceVersion}, out)
	return out, r.api(err, name)
}

// options returns the options of the storage for a list or watch.
func (r *resource) options(options *metainternalversion.ListOptions) storage.ListOptions {
	o := storage.ListOptions{
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch,
		SendInitialEvents: options.SendInitialEvents, Recursive: true,
		Predicate: storage.SelectionPredicate{
			Label: labels.Everything(), Field: fields.Everything(), Limit: options.Limit, Continue: options.Continue,
			AllowWatchBookmarks: options.AllowWatchBookmarks,
		},
	}
	if options.LabelSelector != nil {
		o.Predicate.Label = options.LabelSelector
	}
	if options.FieldSelector != nil {
		o.Predicate.Field = options.FieldSelector
	}
	return o
}

// List implements rest.Lister. It reads part by part until the list is complete, has as many objects as the client wants, or takes too much
// memory.
func (r *resource) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	end, err := r.limits.beginList(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	o, left := r.options(options), options.Limit
	if left <= 0 || left > maxPage {
		left = maxPage
	}
	list, size := r.NewList().(*unstructured.UnstructuredList), int64(0)
	for o.Predicate.Limit = min(firstPage, left); ; {
		part := r.NewList().(*unstructured.UnstructuredList)
		if err := r.storage.GetList(ctx, key(ctx, ""), o, part); err != nil {
			return nil, r.api(err, "")
		}
		for i := range part.Items {
			size += kcpstorage.SizeOf(&part.Items[i])
		}
		list.Object, list.Items = part.Object, append(list.Items, part.Items...)
		left -= int64(len(part.Items))
		if o.Predicate.Continue = part.GetContinue(); o.Predicate.Continue == "" || left <= 0 || size >= maxPageBytes {
			if r.kind == "" && len(list.Items) > 0 {
				list.SetKind(list.Items[0].GetKind() + "List")
			}
			return list, nil
		}
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
		o.Predicate.Limit = left
		if average := size / int64(max(1, len(list.Items))); average > 0 {
			o.Predicate.Limit = max(1, min(left, (maxPageBytes-size)/average))
		}
	}
}

// Watch implements rest.Watcher.
func (r *resource) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	w, err := r.storage.Watch(ctx, key(ctx, ""), r.options(options))
	return w, r.api(err, "")
}

func (r *resource) String() string {
	if r.identity == "" {
		return r.gvr.GroupResource().String()
	}
	return fmt.Sprintf("%s:%s", r.gvr.GroupResource(), r.identity)
}
