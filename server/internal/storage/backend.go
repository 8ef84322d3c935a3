package storage

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Backend stores all resources of the server in one etcd, with one client.
type Backend struct {
	client   *etcdkubernetes.Client
	root     string // of all keys
	decoded  *decodeCache
	streams  *streams
	next     *nextPages
	repeated *repeatedLists
	limit    Limit
	room     Room // nil if it is not known
	lane     string
	identity func(logicalcluster.Name, schema.GroupResource) string
	reports  *reports
	typed    *sync.Map // of *typedCodec, by schema.GroupResource
	readers  *sync.Map // of reader, by schema.GroupResource
	fences   *fences   // nil if no cluster of this store can be fenced
	// acknowledged are *Acknowledged, by schema.GroupResource.
	acknowledged *sync.Map
	compactor    interface {
		etcd3.Compactor
		Stop()
	}
}

// NewBackend returns a backend with client, which it does not own, for keys below root. Watches of the client can then share events. The
// backend compacts history after compactInterval; zero leaves compaction to etcd.
func NewBackend(client *clientv3.Client, root string, compactInterval time.Duration) *Backend {
	wrapped := &etcdkubernetes.Client{Client: client}
	streams := newStreams(newBudget(watchUnread, accountUnread, allUnread))
	if _, shares := client.Watcher.(*etcdWatches); !shares {
		client.Watcher = newEtcdWatches(client.Watcher, streams.budget.ended)
	}
	sizes := newSizes()
	wrapped.Kubernetes = transactions{Interface: wrapped, kv: client.KV, ahead: newReadAhead(), sizes: sizes, history: streams.history}
	return &Backend{
		client: wrapped, root: root, decoded: newDecodeCache(decodedLimit), streams: streams, next: newNextPages(), limit: unlimited{},
		repeated: newRepeatedLists(sizes, &streams.budget.sizers),
		identity: func(logicalcluster.Name, schema.GroupResource) string { return "" },
		reports:  newReports(), typed: &sync.Map{}, readers: &sync.Map{}, acknowledged: &sync.Map{}, lane: ofInformers,
		compactor: etcd3.NewCompactor(client, compactInterval, clock.RealClock{}, func() {}),
	}
}

// Close stops the compaction of history.
func (b *Backend) Close() { b.compactor.Stop() }

// Ping reports whether etcd responds.
func (b *Backend) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := b.Revision(ctx)
	return err
}

// BuiltIn returns base for built-in types, with objects stored below the cluster in the context of each request.
func (b *Backend) BuiltIn(base generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return OptionsGetter(func(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
		options, err := base.GetRESTOptions(resource, example)
		if err != nil {
			return options, err
		}
		return b.place(options, resource, "", options.StorageConfig.Codec), nil
	})
}

// Custom returns base for custom resources. Its codec only parses: the handler of the resource's definition converts,
// prunes and defaults objects.
func (b *Backend) Custom(base generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return b.parsed(base, custom)
}

// Bound returns base for the resources of an API that many clusters bind, as Custom does. The objects are stored below its
// identity, so that objects of two providers whose APIs have the same name never mix.
func (b *Backend) Bound(base generic.RESTOptionsGetter, identity string) generic.RESTOptionsGetter {
	return b.parsed(base, "/"+identity)
}

// All returns base for lists and watches of the custom resources of all clusters, stored by Custom or Bound.
func (b *Backend) All(base generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return b.parsed(base, everywhere)
}

func (b *Backend) parsed(base generic.RESTOptionsGetter, suffix string) generic.RESTOptionsGetter {
	return OptionsGetter(func(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
		options, err := base.GetRESTOptions(resource, example)
		if err != nil {
			return options, err
		}
		return b.place(options, resource, suffix, unstructured.UnstructuredJSONScheme), nil
	})
}

// OptionsGetter is a generic.RESTOptionsGetter.
type OptionsGetter func(schema.GroupResource, runtime.Object) (generic.RESTOptions, error)

// GetRESTOptions implements generic.RESTOptionsGetter.
func (g OptionsGetter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	return g(resource, example)
}

// custom follows the resource in the keys of custom resources.
const custom = "/customresources"

func resourcePrefix(resource schema.GroupResource) string {
	if resource.Group == "" {
		return "/core/" + resource.Resource
	}
	return "/" + resource.Group + "/" + resource.Resource
}

func (b *Backend) place(options generic.RESTOptions, resource schema.GroupResource, suffix string,
	codec runtime.Codec) generic.RESTOptions {
	config := *options.StorageConfig
	config.GroupResource = resource
	config.Codec = readCodec{codec}
	options.StorageConfig = &config
	options.ResourcePrefix = resourcePrefix(resource)
	if suffix != everywhere {
		options.ResourcePrefix += suffix
	}
	options.Decorator = b.decorator(config.Codec, suffix)
	options.CountMetricPollPeriod = 0 // it would count all keys of all clusters for each definition
	return options
}

// everywhere is the suffix of the storage that reads the custom resources of all other suffixes.
const everywhere = "/*"

// decorator returns a generic.StorageDecorator for values that codec decodes. Custom resources may have Go types.
func (b *Backend) decorator(codec runtime.Codec, suffix string) generic.StorageDecorator {
	return func(
		config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, _ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		g := &guard{backend: b, resource: config.GroupResource, codec: codec, newFunc: newFunc, namespaced: isNamespaced(keyFunc, newFunc),
			custom: suffix == custom}
		if suffix == everywhere {
			g.above = prefix + "/"
		}
		s, destroy, err := b.open(config, prefix, g, newListFunc)
		if err == nil && suffix == "" {
			b.addReader(prefix, g)
		}
		return s, destroy, err
	}
}

// open returns the storage of the values that g guards.
func (b *Backend) open(config *storagebackend.ConfigForResource, prefix string, g *guard,
	newListFunc func() runtime.Object) (*clusterStorage, factory.DestroyFunc, error) {
	versioner := storage.APIObjectVersioner{}
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	if compressedResources[config.GroupResource] {
		transformer = compressed{transformer}
	}
	decoder := &cachingDecoder{etcd3.NewDefaultDecoder(config.Codec, versioner), b.decoded}
	g.Transformer = transformer
	client := &etcdkubernetes.Client{
		Client:     b.client.Client,
		Kubernetes: acknowledging{b.client.Kubernetes, b, config.GroupResource, path.Join("/", config.Prefix, prefix) + "/"},
	}
	plain, err := etcd3.New(client, b.compactor, config.Codec, g.newFunc, newListFunc, config.Prefix, prefix, config.GroupResource,
		g, config.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		return nil, nil, fmt.Errorf("storage of %s: %w", config.GroupResource, err)
	}
	var inner storage.Interface = plain
	if b.fences != nil {
		inner = behindFences{plain, &b.fences.knownFences}
	}
	s := &clusterStorage{
		Interface: restricted{inner, config.GroupResource, b.lane}, resource: config.GroupResource, prefix: prefix, namespaced: g.namespaced,
		newFunc: g.newFunc, newList: newListFunc, streams: b.streams, next: b.next, limit: b.limit,
		repeated: b.repeated, root: config.Prefix, fences: b.fences,
	}
	return s, func() {
		plain.Close()
		b.decoded.forget(decoder)
		b.repeated.forget(s)
	}, nil
}

// isNamespaced calls the key function of a registry, which rejects objects of namespaced types without a namespace.
func isNamespaced(keyFunc func(runtime.Object) (string, error), newFunc func() runtime.Object) bool {
	obj := newFunc()
	m, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	m.SetName("x")
	_, err = keyFunc(obj)
	return err != nil && strings.Contains(err.Error(), "Namespace parameter required")
}
