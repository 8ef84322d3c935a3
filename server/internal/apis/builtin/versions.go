package builtin

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// servedVersions is a provider without the versions that the server does not serve: the scheme knows them, and upstream logs a warning for
// each of them. Its lists are encoded by listEncoding. The providers have no hooks, which it would hide.
type servedVersions struct {
	controlplaneapiserver.RESTStorageProvider
}

// NewRESTStorage implements controlplaneapiserver.RESTStorageProvider.
func (p servedVersions) NewRESTStorage(source serverstorage.APIResourceConfigSource,
	getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	info, err := p.RESTStorageProvider.NewRESTStorage(source, getter)
	if err == nil {
		OnlyServedVersions(&info)
		info.NegotiatedSerializer = listEncoding{info.NegotiatedSerializer}
	}
	return info, err
}

// OnlyServedVersions removes the versions without resources from an API group.
func OnlyServedVersions(info *genericapiserver.APIGroupInfo) {
	info.PrioritizedVersions = slices.DeleteFunc(slices.Clone(info.PrioritizedVersions), func(v schema.GroupVersion) bool {
		return len(info.VersionedResourcesStorageMap[v.Version]) == 0
	})
}
