package builtin

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// Registries creates and reads built-in objects for the server itself through their registries: objects are defaulted
// and validated, but without a request, its handlers and its admission. It has the types that Providers added.
type Registries struct {
	registries map[schema.GroupKind]registry
}

type registry struct {
	rest.Creater
	rest.Getter
	resource string
}

// Create stores obj, of an external version, in the cluster of ctx.
func (r *Registries) Create(ctx context.Context, obj runtime.Object) error {
	_, err := r.create(ctx, obj, &metav1.CreateOptions{})
	return err
}

// Complete returns obj as Create would store it, with the defaults and fields that the server sets. It stores nothing, and fails if the
// object exists.
func (r *Registries) Complete(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	internal, err := r.create(ctx, obj, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	complete := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	return complete, legacyscheme.Scheme.Convert(internal, complete, nil)
}

func (r *Registries) create(ctx context.Context, obj runtime.Object, options *metav1.CreateOptions) (runtime.Object, error) {
	registry, kind, err := r.of(obj)
	if err != nil {
		return nil, err
	}
	obj = obj.DeepCopyObject()
	legacyscheme.Scheme.Default(obj)
	internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(obj,
		schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(internal)
	if err != nil {
		return nil, err
	}
	// Validation depends on the version of the request.
	ctx = request.WithRequestInfo(request.WithNamespace(ctx, m.GetNamespace()), &request.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: kind.Group, APIVersion: kind.Version,
		Resource: registry.resource, Namespace: m.GetNamespace(), Name: m.GetName(),
	})
	return registry.Create(ctx, internal, rest.ValidateAllObjectFunc, options)
}

// Get reads the object name of the cluster of ctx into an object of an external version. namespace is empty for cluster-scoped
// objects.
func (r *Registries) Get(ctx context.Context, namespace, name string, into runtime.Object) error {
	registry, _, err := r.of(into)
	if err != nil {
		return err
	}
	internal, err := registry.Get(request.WithNamespace(ctx, namespace), name, &metav1.GetOptions{})
	if err != nil {
		return err
	}
	return legacyscheme.Scheme.Convert(internal, into, nil)
}

// of returns the registry of the kind of obj.
func (r *Registries) of(obj runtime.Object) (registry, schema.GroupVersionKind, error) {
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return registry{}, schema.GroupVersionKind{}, err
	}
	found, ok := r.registries[kinds[0].GroupKind()]
	if !ok {
		return found, kinds[0], fmt.Errorf("the server has no registry of kind %s", kinds[0].Kind)
	}
	return found, kinds[0], nil
}

// add takes the registries of one version of a group; subresources are none.
func (r *Registries) add(group string, storage map[string]rest.Storage) {
	for resource, s := range storage {
		creater, creates := s.(rest.Creater)
		getter, gets := s.(rest.Getter)
		if !creates || !gets || strings.Contains(resource, "/") {
			continue
		}
		if kinds, _, err := legacyscheme.Scheme.ObjectKinds(creater.New()); err == nil {
			if r.registries == nil {
				r.registries = map[schema.GroupKind]registry{}
			}
			r.registries[schema.GroupKind{Group: group, Kind: kinds[0].Kind}] = registry{creater, getter, resource}
		}
	}
}

// known adds the registries of a group to Registries.
type known struct {
	controlplaneapiserver.RESTStorageProvider
	registries *Registries
}

func (p known) NewRESTStorage(source serverstorage.APIResourceConfigSource,
	getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := p.RESTStorageProvider.NewRESTStorage(source, getter)
	if err == nil {
		p.registries.add(p.GroupName(), info.VersionedResourcesStorageMap["v1"])
	}
	return info, err
}
