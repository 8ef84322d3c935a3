package builtin

import (
	"context"
	"fmt"
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
	corerest "k8s.io/kubernetes/pkg/registry/core/rest"
)

// Creator creates built-in objects for the server itself as their registries do: defaulted and valid, but without a
// request and its admission. It knows the types that Providers has given it.
type Creator struct {
	registries map[schema.GroupKind]registry
}

type registry struct {
	rest.Creater
	resource string
}

// Create stores obj, of an external version, in the cluster of ctx.
func (c *Creator) Create(ctx context.Context, obj runtime.Object) error {
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return err
	}
	kind := kinds[0]
	registry, ok := c.registries[kind.GroupKind()]
	if !ok {
		return fmt.Errorf("no registry creates a %s", kind.Kind)
	}
	obj = obj.DeepCopyObject()
	legacyscheme.Scheme.Default(obj)
	internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(obj, schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return err
	}
	m, err := meta.Accessor(internal)
	if err != nil {
		return err
	}
	// Validation is that of the version of the request.
	ctx = request.WithRequestInfo(request.WithNamespace(ctx, m.GetNamespace()), &request.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: kind.Group, APIVersion: kind.Version,
		Resource: registry.resource, Namespace: m.GetNamespace(), Name: m.GetName(),
	})
	_, err = registry.Create(ctx, internal, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	return err
}

// add takes the registries of one version of a group; subresources are none.
func (c *Creator) add(group string, storage map[string]rest.Storage) {
	for resource, s := range storage {
		creater, ok := s.(rest.Creater)
		if !ok || strings.Contains(resource, "/") {
			continue
		}
		if kinds, _, err := legacyscheme.Scheme.ObjectKinds(creater.New()); err == nil {
			if c.registries == nil {
				c.registries = map[schema.GroupKind]registry{}
			}
			c.registries[schema.GroupKind{Group: group, Kind: kinds[0].Kind}] = registry{creater, resource}
		}
	}
}

// coreProvider gives its registries to a Creator.
type coreProvider struct {
	*corerest.GenericConfig
	creator *Creator
}

func (p coreProvider) NewRESTStorage(source serverstorage.APIResourceConfigSource, getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := p.GenericConfig.NewRESTStorage(source, getter)
	if err == nil {
		p.creator.add(p.GroupName(), info.VersionedResourcesStorageMap["v1"])
	}
	return info, err
}
