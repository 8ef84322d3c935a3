package customresources

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crconversion "k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	clusterstorage "github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file serves virtual resources: consumers that bind one read objects of its provider, as if the objects were in the
// cluster of the consumer. Upstream's handler of the definition works as for other resources, on a storage that reads from
// the provider.

// Reader reads the objects of a resource in the logical cluster of a context. The storage of the shard implements it.
type Reader interface {
	Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error
	GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error
	Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error)
}

// origin describes where the objects of a virtual resource are.
type origin struct {
	cachedresources.Source
	cluster logicalcluster.Name
	// definition is that of the cluster, version the one in which it publishes the objects.
	definition *Definition
	version    schema.GroupVersion
	selector   labels.Selector
	// elsewhere is the virtual workspace with the objects, if this shard does not store them.
	elsewhere *elsewhere
	// published are the objects, if another shard stores them; the zero value if this shard does.
	published cachedresources.Publication
}

// Mirrors have objects of other shards.
type Mirrors interface {
	// Holder returns the other shard that holds a cluster; an empty name if this shard does, or if it is unknown.
	Holder(cluster logicalcluster.Name) string
	// Options returns the storage of what a ClusterCachedResource of another shard publishes.
	Options(cachedresources.Publication) generic.RESTOptionsGetter
}

func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

func readOnly(resource schema.GroupResource, verb string) error {
	err := apierrors.NewMethodNotSupported(resource, verb)
	err.ErrStatus.Message = fmt.Sprintf("%s is read-only here", resource)
	return err
}

func watchedPart(p cachedresources.Part) watched {
	return watched{logicalcluster.Cluster{Name: logicalcluster.Name(p.String())}, ""}
}

// origin returns where the objects of a virtual resource are now. The error is sent to consumers: it contains nothing about
// the provider's workspace.
func (h *Handler) origin(ctx context.Context, d *Definition) (origin, error) {
	resource := schema.GroupResource{Group: d.CRD.Spec.Group, Resource: d.CRD.Spec.Names.Plural}
	if reference, ok := h.config.Cached.EndpointSlice(d.shownBy.Cluster, d.shownBy.Name, resource); ok && h.config.Endpoints != nil {
		return h.originElsewhere(ctx, d, reference)
	}
	source, err := h.config.Cached.Source(d.shownBy.Cluster, d.shownBy.Name, resource)
	o := origin{Source: source}
	if err == nil {
		o.cluster = logicalcluster.Of(source.Resource)
		if shard := h.holder(o.cluster); shard != "" {
			return h.originOnShard(d, o, shard)
		}
		installed, _ := h.registry.get(o.cluster, d.Key())
		o.definition = installed.Definition
		o.version, err = agreed(d, o.definition, source.Resource.Spec.Version)
	}
	if err == nil {
		o.selector, err = selectorOf(source.Resource.Spec.LabelSelector)
	}
	if err != nil {
		return o, unavailable(d, err)
	}
	return o, nil
}

// holder returns the other shard that holds a cluster.
func (h *Handler) holder(cluster logicalcluster.Name) string {
	if h.config.Mirrors == nil {
		return ""
	}
	return h.config.Mirrors.Holder(cluster)
}

// originOnShard is origin for objects of another shard, which offers those that are selected, in the published version.
func (h *Handler) originOnShard(d *Definition, o origin, shard string) (origin, error) {
	published := o.Resource.Spec
	if d.CRD.Spec.Scope != apiextensionsv1.ClusterScoped {
		return o, unavailable(d, errors.New("only cluster-scoped resources can be published"))
	}
	if !d.Serves(published.Version) {
		return o, unavailable(d, fmt.Errorf("the provider publishes version %q, which is not served", published.Version))
	}
	o.definition, o.selector = d, labels.Everything()
	o.version = schema.GroupVersion{Group: d.CRD.Spec.Group, Version: published.Version}
	o.published = cachedresources.Publication{
		Shard: shard, Cluster: o.cluster, Resource: o.version.WithResource(d.CRD.Spec.Names.Plural), Identity: o.Resource.Status.IdentityHash,
		Kind: d.CRD.Spec.Names.Kind,
	}
	return o, nil
}

func unavailable(d *Definition, err error) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s is currently unavailable: %v", d.Key(), err))
}

func selectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// agreed returns the version in which a provider publishes objects to consumers with definition d.
func agreed(d, provider *Definition, version string) (schema.GroupVersion, error) {
	if provider == nil || provider.IsVirtual() || provider.IsSystem() {
		return schema.GroupVersion{}, errors.New("the provider does not serve this resource")
	}
	if provider.CRD.Spec.Scope != apiextensionsv1.ClusterScoped || d.CRD.Spec.Scope != apiextensionsv1.ClusterScoped {
		return schema.GroupVersion{}, errors.New("only cluster-scoped resources can be published")
	}
	shown := provider.VersionOf(version)
	if shown == "" || !d.Serves(shown) {
		return schema.GroupVersion{}, fmt.Errorf("the provider publishes version %q, which is not served", version)
	}
	return schema.GroupVersion{Group: d.CRD.Spec.Group, Version: shown}, nil
}

// virtualOptions read the objects of a virtual resource from the storage of its provider.
type virtualOptions struct {
	generic.RESTOptionsGetter
	handler    *Handler
	definition *Definition
}

func (v virtualOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := v.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	s := &virtualStorage{virtualOptions: v, resource: resource, prefix: options.ResourcePrefix}
	config := *options.StorageConfig
	config.Codec = &originCodec{Codec: config.Codec, current: &s.current}
	options.StorageConfig = &config
	decorate := options.Decorator
	options.Decorator = func(
		config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		own, destroy, err := decorate(config, prefix, keyFunc, newFunc, newListFunc, attributes, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		s.Interface = own
		s.open = func(getter generic.RESTOptionsGetter) (*opened, error) {
			theirs, err := getter.GetRESTOptions(resource, example)
			if err != nil {
				return nil, err
			}
			reader, destroy, err := theirs.Decorator(config, theirs.ResourcePrefix, keyFunc, newFunc, newListFunc, attributes, triggers, indexers)
			return &opened{reader: reader, prefix: theirs.ResourcePrefix, close: destroy}, err
		}
		return s, func() {
			destroy()
			s.close()
		}, nil
	}
	return options, nil
}

// opened is an open storage with the objects of a provider.
type opened struct {
	reader  Reader
	prefix  string
	close   func()
	convert runtime.ObjectConvertor
}

// reading is an open storage, and the part that is read from it.
type reading struct {
	origin
	*opened
}

// virtualStorage reads the objects of a provider, and returns them as if they were in the cluster of the context. The embedded
// storage, where the objects of other resources are, is empty.
type virtualStorage struct {
	storage.Interface
	virtualOptions
	resource schema.GroupResource
	prefix   string
	open     func(generic.RESTOptionsGetter) (*opened, error)

	current atomic.Pointer[reading]
	mu      sync.Mutex // guards changes of current
}

// locate returns the storage and context of the provider's objects, and the cluster that reads them.
func (s *virtualStorage) locate(ctx context.Context) (*reading, context.Context, logicalcluster.Name, error) {
	consumer, err := logicalcluster.NameFrom(ctx)
	if errors.Is(err, logicalcluster.ErrWildcard) {
		return nil, nil, "", apierrors.NewBadRequest(
			fmt.Sprintf("%s: use the name of one logical cluster, because the objects are the same in all of them", s.resource),
		)
	}
	if err != nil {
		return nil, nil, "", apierrors.NewInternalError(fmt.Errorf("%s: %w", s.resource, err))
	}
	o, err := s.handler.origin(ctx, s.definition)
	if err != nil {
		return nil, nil, "", err
	}
	r, err := s.read(o)
	if err != nil {
		return nil, nil, "", apierrors.NewInternalError(fmt.Errorf("%s: %w", s.resource, err))
	}
	if r.elsewhere != nil || r.published.Shard != "" {
		return r, ctx, consumer, nil
	}
	return r, logicalcluster.WithName(clusterstorage.WithRestriction(ctx, o.selector), o.cluster), consumer, nil
}

// read opens the storage of a provider, unless it is open.
func (s *virtualStorage) read(o origin) (*reading, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.current.Load()
	if before != nil && before.origin.definition == o.definition && before.version == o.version && before.elsewhere.same(o.elsewhere) &&
		before.published == o.published {
		return &reading{o, before.opened}, nil
	}
	getter := s.handler.config.Options
	if o.definition.Identity != "" {
		getter = s.handler.config.BoundOptions(o.definition.Identity)
	}
	if o.published.Shard != "" {
		getter = s.handler.config.Mirrors.Options(o.published)
	}
	if o.elsewhere != nil {
		var err error
		if getter, err = s.handler.config.Endpoints.Options(o.elsewhere.url,
			o.version.WithResource(o.definition.CRD.Spec.Names.Plural)); err != nil {
			return nil, err
		}
	}
	now, err := s.open(getter)
	if err != nil {
		return nil, err
	}
	factory, err := crconversion.NewCRConverterFactory(s.handler.config.ServiceResolver, s.handler.authResolver(o.definition))
	if err == nil {
		_, now.convert, err = factory.NewConverter(o.definition.CRD)
	}
	if err != nil {
		now.close()
		return nil, err
	}
	if before != nil {
		before.close()
	}
	r := &reading{o, now}
	s.current.Store(r)
	return r, nil
}

func (s *virtualStorage) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.current.Load(); r != nil {
		r.close()
	}
}

func (s *virtualStorage) key(r *reading, key string) string {
	return r.prefix + strings.TrimPrefix(key, s.prefix)
}
