package customresources

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// codecOptions replace the codec of storage. wrap receives upstream's codec, the inner codec, which only parses, and the kind that the
// storage returns.
type codecOptions struct {
	generic.RESTOptionsGetter
	wrap func(whole, parsed runtime.Codec, kind schema.GroupVersionKind) runtime.Codec
}

// GetRESTOptions implements generic.RESTOptionsGetter. Upstream wraps the codec from these options before it calls the
// decorator.
func (o codecOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	parsed, decorate := options.StorageConfig.Codec, options.Decorator
	options.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error), newFunc,
		newListFunc func() runtime.Object,
		attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		wrapped := *config
		wrapped.Codec = o.wrap(config.Codec, parsed, newFunc().GetObjectKind().GroupVersionKind())
		return decorate(&wrapped, prefix, keyFunc, newFunc, newListFunc, attributes, triggers, indexers)
	}
	return options, nil
}
