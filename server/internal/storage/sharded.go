package storage

import (
	"context"
	"maps"
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// ShardAnnotation is the annotation with the shard that offers an object in the cache server.
const ShardAnnotation = "kcp.io/shard"

// Place is where a request to the cache server reads or writes: the objects of a logical cluster that a shard offers. Lists and watches
// of all shards have no Shard, those of all clusters no Cluster.
type Place struct {
	Shard   string
	Cluster logicalcluster.Name
}

type placeKey struct{}

// WithPlace returns a context for the storages of Sharded.
func WithPlace(ctx context.Context, p Place) context.Context {
	return context.WithValue(ctx, placeKey{}, p)
}

// Beside returns a backend for a cache in the same etcd, with keys below another root. The limits and reports of b do not apply to it. b
// compacts its history.
func (b *Backend) Beside(root string) *Backend {
	beside := NewBackend(b.client.Client, root, 0)
	beside.lane = ofCache
	if b.room != nil {
		beside.SetRoom(b.room, func(context.Context) bool { return false })
	}
	return beside
}

// Sharded returns the storage of a resource for the place in the context of each request. Its keys are
// <root>/<group>/<resource>[:<identity>]/<shard>/<cluster>/[<namespace>/]<name>, and those of callers [/<namespace>]/<name>, or
// [/<namespace>] for collections. Objects are neither converted nor validated. Bookmarks have a kind, objects the kind that they were
// stored with. Writes depend on the conditions of their context.
func (b *Backend) Sharded(resource schema.GroupResource, identity string, kind schema.GroupVersionKind) (storage.Interface,
	factory.DestroyFunc, error) {
	prefix := resourcePrefix(resource)
	if identity != "" {
		prefix += ":" + identity
	}
	codec := readCodec{unstructured.UnstructuredJSONScheme}
	config := storagebackend.NewDefaultConfig(b.root, codec).ForResource(resource)
	newFunc := func() runtime.Object {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		return u
	}
	g := &guard{
		backend: b, resource: resource, codec: codec, newFunc: newFunc,
		above: path.Join("/", b.root, prefix) + "/", // <shard>/<cluster>/<namespace>/<name> is namespaced
	}
	all, destroy, err := b.conditionally().open(config, prefix, g, func() runtime.Object { return &unstructured.UnstructuredList{} })
	if err != nil {
		return nil, nil, err
	}
	return &sharded{Interface: all, all: all}, destroy, nil
}

// sharded stores the objects of one resource below the shard and the logical cluster of the context.
type sharded struct {
	storage.Interface
	all *clusterStorage
}

// in returns the storage of one shard, the context of one of its clusters, and the key of an object for them.
func (s *sharded) in(ctx context.Context, key string) (context.Context, *clusterStorage, string, Place, error) {
	p, _ := ctx.Value(placeKey{}).(Place)
	if p.Shard == "" || p.Cluster == "" {
		err := apierrors.NewMethodNotSupported(s.all.resource, "access one object")
		err.ErrStatus.Message = "only list and watch are supported for all shards or all logical clusters; use the name of one of each"
		return nil, nil, "", p, err
	}
	of := *s.all
	of.prefix += "/" + p.Shard
	return logicalcluster.WithName(ctx, p.Cluster), &of, of.prefix + key, p, nil
}

// stampShard sets the annotation with the shard of obj, regardless of the value from the client.
func stampShard(obj runtime.Object, shard string) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	annotations := maps.Clone(m.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[ShardAnnotation] = shard
	m.SetAnnotations(annotations)
	return nil
}

// Create implements storage.Interface.
func (s *sharded) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	ctx, of, key, p, err := s.in(ctx, key)
	if err != nil {
		return err
	}
	if err := stampShard(obj, p.Shard); err != nil {
		return err
	}
	return of.Create(ctx, key, obj, out, ttl)
}

// Get implements storage.Interface.
func (s *sharded) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	ctx, of, key, _, err := s.in(ctx, key)
	if err != nil {
		return err
	}
	return of.Get(ctx, key, opts, out)
}

// Delete implements storage.Interface.
func (s *sharded) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	ctx, of, key, _, err := s.in(ctx, key)
	if err != nil {
		return err
	}
	return of.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

// GuaranteedUpdate implements storage.Interface.
func (s *sharded) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	ctx, of, key, p, err := s.in(ctx, key)
	if err != nil {
		return err
	}
	stamped := func(in runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		obj, ttl, err := update(in, meta)
		if err != nil {
			return nil, nil, err
		}
		return obj, ttl, stampShard(obj, p.Shard)
	}
	return of.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, stamped, cached)
}

// collection returns the prefix of the keys of a place, and options that select what the prefix does not.
func (s *sharded) collection(ctx context.Context, namespace string, opts storage.ListOptions) (string, storage.ListOptions) {
	p, _ := ctx.Value(placeKey{}).(Place)
	opts.Recursive = true
	opts.Predicate.GetAttrs = selectable
	var selected []fields.Selector
	if opts.Predicate.Field != nil {
		selected = append(selected, opts.Predicate.Field)
	}
	key := s.all.prefix
	if p.Shard != "" {
		key += "/" + p.Shard
	}
	switch {
	case p.Shard != "" && p.Cluster != "":
		key += "/" + string(p.Cluster) + namespace
		namespace = ""
	case p.Cluster != "":
		selected = append(selected, fields.OneTermEqualSelector(logicalcluster.AnnotationKey, string(p.Cluster)))
	}
	if namespace != "" {
		selected = append(selected, fields.OneTermEqualSelector("metadata.namespace", namespace[1:]))
	}
	opts.Predicate.Field = fields.AndSelectors(selected...)
	return key, opts
}

// selectable returns what selectors of lists and watches can match. The storage writes the annotation with the cluster.
func selectable(obj runtime.Object) (labels.Set, fields.Set, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, err
	}
	return m.GetLabels(), fields.Set{
		"metadata.name": m.GetName(), "metadata.namespace": m.GetNamespace(),
		logicalcluster.AnnotationKey: m.GetAnnotations()[logicalcluster.AnnotationKey],
	}, nil
}

// GetList implements storage.Interface. It leaves out unreadable objects.
func (s *sharded) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	key, opts = s.collection(ctx, key, opts)
	return s.all.listKeys(logicalcluster.WithWildcard(ctx), key, opts, list)
}

// Watch implements storage.Interface. It delivers unreadable objects as deleted.
func (s *sharded) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	key, opts = s.collection(ctx, key, opts)
	return s.all.watchKeys(logicalcluster.WithWildcard(ctx), key, opts)
}
