package customresources

import (
	"context"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// Upstream's validation wants the apiVersion of a custom resource to be <group>/<version>, which is "/v1" in the core
// group. Everything else, upstream and clients, knows "v1", and parses "/v1" as the same. This file therefore shows "/v1"
// to the validation alone: an object gets it at the end of mutating admission and loses it on the way to validating
// admission and to storage.

// addSlash makes obj pass upstream's validation.
func addSlash(obj runtime.Object) {
	if u, ok := obj.(*unstructured.Unstructured); ok && u != nil && !strings.Contains(u.GetAPIVersion(), "/") {
		u.SetAPIVersion("/" + u.GetAPIVersion())
	}
}

// trimSlash undoes addSlash.
func trimSlash(obj runtime.Object) {
	if u, ok := obj.(*unstructured.Unstructured); ok && u != nil && strings.HasPrefix(u.GetAPIVersion(), "/") {
		u.SetAPIVersion(u.GetAPIVersion()[1:])
	}
}

// coreAdmission stands on both sides of the validation of resources in the core group.
type coreAdmission struct{ createGuard }

// Handles implements admission.Interface.
func (a coreAdmission) Handles(op admission.Operation) bool {
	return op == admission.Update || a.createGuard.Handles(op)
}

// Admit implements admission.MutationInterface.
func (a coreAdmission) Admit(ctx context.Context, attributes admission.Attributes, o admission.ObjectInterfaces) error {
	if err := a.createGuard.Admit(ctx, attributes, o); err != nil {
		return err
	}
	if op := attributes.GetOperation(); op == admission.Create || op == admission.Update {
		addSlash(attributes.GetObject())
		addSlash(attributes.GetOldObject()) // or every update would look like one of content, and count as a generation
	}
	return nil
}

// Validate implements admission.ValidationInterface. It is given copies.
func (a coreAdmission) Validate(ctx context.Context, attributes admission.Attributes, o admission.ObjectInterfaces) error {
	trimSlash(attributes.GetObject())
	trimSlash(attributes.GetOldObject())
	return a.createGuard.Validate(ctx, attributes, o)
}

// coreOptions place resources of the core group in storage.
type coreOptions struct{ generic.RESTOptionsGetter }

func (o coreOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	config := *options.StorageConfig
	config.Codec = coreCodec{config.Codec}
	options.StorageConfig = &config
	inner := options.Decorator
	options.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		s, destroy, err := inner(config, prefix, keyFunc, newFunc, newListFunc, attrs, triggers, indexers)
		return coreStorage{s}, destroy, err
	}
	return options, nil
}

// coreCodec stores objects without the slash.
type coreCodec struct{ runtime.Codec }

// Encode implements runtime.Encoder.
func (c coreCodec) Encode(obj runtime.Object, w io.Writer) error {
	if u, ok := obj.(*unstructured.Unstructured); ok && strings.HasPrefix(u.GetAPIVersion(), "/") {
		stored := &unstructured.Unstructured{Object: make(map[string]any, len(u.Object))}
		for field, value := range u.Object {
			stored.Object[field] = value
		}
		trimSlash(stored)
		obj = stored
	}
	return c.Codec.Encode(obj, w)
}

// coreStorage adds the slash where admission does not see the object: in the subresource scale.
type coreStorage struct{ storage.Interface }

func (s coreStorage) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	if info, ok := request.RequestInfoFrom(ctx); !ok || info.Subresource != "scale" {
		return s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	}
	return s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions,
		func(in runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
			addSlash(in)
			return update(in, meta)
		}, cached)
}
