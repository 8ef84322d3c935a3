package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// clusterStorage stores the objects of one resource below the logical cluster of the context.
type clusterStorage struct {
	storage.Interface
	resource schema.GroupResource
	// prefix is the prefix in the keys of callers, which are <prefix>/[<namespace>/]<name>.
	prefix     string
	namespaced bool
	// streams deliver the events of watches; watches of the same keys share events, unless unshared is set.
	streams  *streams
	unshared bool
	newList  func() runtime.Object
	newFunc  func() runtime.Object
	next     *nextPages
	limit    Limit
	// repeated is nil for storages whose lists are always read.
	repeated *repeatedLists
	root     string  // of the keys in etcd
	fences   *fences // nil if no cluster of this store can be fenced
	// own is set for the storage of the server itself, which never gets unreadable objects.
	own bool
}

// objectKey returns the key of one object, and its cluster.
func (s *clusterStorage) objectKey(ctx context.Context, key string) (string, logicalcluster.Name, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return "", "", s.scopeError(err)
	}
	relative, err := s.relative(key)
	if err != nil {
		return "", "", err
	}
	return s.prefix + "/" + string(cluster) + relative, cluster, nil
}

// relative returns the part after the prefix in a key of a caller: empty, or a path that starts with a slash.
func (s *clusterStorage) relative(key string) (string, error) {
	rest, ok := strings.CutPrefix(key, s.prefix)
	if !ok || (rest != "" && rest[0] != '/') {
		return "", apierrors.NewInternalError(fmt.Errorf("key of %s is outside of its prefix", s.resource))
	}
	return rest, nil
}

func (s *clusterStorage) scopeError(err error) error {
	if errors.Is(err, logicalcluster.ErrWildcard) {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
			Message: fmt.Sprintf("%s: only list and watch are supported for logical cluster %q; use the name of one logical "+
				"cluster", s.resource, "*"),
		}}
	}
	return apierrors.NewInternalError(fmt.Errorf("%s: %w", s.resource, err))
}

// stamp sets the annotation with the logical cluster of obj, regardless of the value from the client.
func stamp(obj runtime.Object, cluster logicalcluster.Name) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	annotations := m.GetAnnotations()
	if annotations[logicalcluster.AnnotationKey] == string(cluster) {
		return nil
	}
	stamped := make(map[string]string, len(annotations)+1)
	maps.Copy(stamped, annotations)
	stamped[logicalcluster.AnnotationKey] = string(cluster)
	m.SetAnnotations(stamped)
	return nil
}

func (s *clusterStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	absolute, cluster, err := s.objectKey(ctx, key)
	if err != nil {
		return err
	}
	if err := join(ctx, s.resource); err != nil {
		return err
	}
	if err := stamp(obj, cluster); err != nil {
		return err
	}
	settle, err := s.limit.Add(ctx, s.resource, obj)
	if err != nil {
		return err
	}
	err = refusal(s.Interface.Create(ctx, absolute, obj, withoutDecoding(ctx, obj, out), ttl))
	settled(ctx, settle, err == nil)
	return s.named(err, key)
}

func (s *clusterStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	absolute, _, err := s.objectKey(ctx, key)
	if err != nil {
		return err
	}
	err = s.Interface.Get(ctx, absolute, opts, out)
	if again, ok := s.tolerant(ctx, err); ok {
		unreadable := err
		if err := runtime.SetZeroValue(out); err != nil { // it may be partly decoded
			return err
		}
		if err = s.Interface.Get(again, absolute, opts, out); err == nil && isLeftOut(out) {
			return errors.Join(unreadable, runtime.SetZeroValue(out))
		}
	}
	return s.named(err, key)
}

func (s *clusterStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	absolute, cluster, err := s.objectKey(ctx, key)
	if err != nil {
		return err
	}
	err = s.Interface.Delete(ctx, absolute, out, preconditions, validate, cached, opts)
	if again, ok := s.tolerant(ctx, err); ok {
		unreadable := err
		err = s.Interface.Delete(again, absolute, out, preconditions, func(ctx context.Context, obj runtime.Object) error {
			if isLeftOut(obj) {
				return unreadable
			}
			return validate(ctx, obj)
		}, nil, opts)
	}
	if err == nil {
		s.limit.Deleted(cluster, s.resource)
	}
	return s.named(err, key)
}

func (s *clusterStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	absolute, cluster, err := s.objectKey(ctx, key)
	if err != nil {
		return err
	}
	var settle func(stored bool)
	creating := false
	stamped := func(in runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		obj, ttl, err := update(in, meta)
		if err != nil {
			return obj, ttl, err
		}
		// Applying an object that does not exist creates it. The next attempt may find that another client created
		// it.
		if creating = meta.ResourceVersion == 0; creating && settle == nil {
			if settle, err = s.limit.Add(ctx, s.resource, obj); err != nil {
				return nil, nil, err
			}
		}
		return obj, ttl, stamp(obj, cluster)
	}
	err = s.Interface.GuaranteedUpdate(ctx, absolute, out, ignoreNotFound, preconditions, stamped, cached)
	switch again, ok := s.tolerant(ctx, err); {
	case ok:
		unreadable := err
		err = s.Interface.GuaranteedUpdate(again, absolute, out, ignoreNotFound, preconditions,
			func(in runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
				if isLeftOut(in) && !replaces(ctx) {
					return nil, nil, unreadable
				}
				return stamped(in, meta)
			}, nil)
	case isRefused(err):
		err = s.Interface.GuaranteedUpdate(withRepair(ctx), absolute, out, ignoreNotFound, preconditions, stamped, nil)
	}
	err = refusal(err)
	if settle != nil {
		settle(err == nil && creating)
	}
	return s.named(err, key)
}

// named replaces the key in storage errors by the key of the caller.
func (s *clusterStorage) named(err error, key string) error {
	if e := (*storage.StorageError)(nil); errors.As(err, &e) {
		renamed := *e
		renamed.Key = key
		return &renamed
	}
	return err
}

// collection translates the key and the options of a list or watch.
func (s *clusterStorage) collection(ctx context.Context, key string, opts storage.ListOptions) (string, storage.ListOptions, error) {
	c, ok := logicalcluster.From(ctx)
	if !ok {
		return "", opts, s.scopeError(logicalcluster.ErrMissing)
	}
	relative, err := s.relative(key)
	if err != nil {
		return "", opts, err
	}
	opts = narrow(ctx, opts)
	if !c.Wildcard {
		return s.prefix + "/" + string(c.Name) + relative, opts, nil
	}
	// Across clusters, a namespace or a name is not a prefix of the key: both become selectors.
	var narrowed []fields.Selector
	if opts.Predicate.Field != nil {
		narrowed = append(narrowed, opts.Predicate.Field)
	}
	parts := strings.FieldsFunc(relative, func(r rune) bool { return r == '/' })
	if s.namespaced && len(parts) > 0 {
		narrowed = append(narrowed, fields.OneTermEqualSelector("metadata.namespace", parts[0]))
		parts = parts[1:]
	}
	if len(parts) > 0 {
		narrowed = append(narrowed, fields.OneTermEqualSelector("metadata.name", parts[0]))
	}
	opts.Predicate.Field = fields.AndSelectors(narrowed...)
	opts.Recursive = true
	return s.prefix, opts, nil
}

func (s *clusterStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	absolute, opts, err := s.collection(ctx, key, opts)
	if err != nil {
		return err
	}
	return s.listKeys(ctx, absolute, opts, list)
}

// listKeys lists the objects with keys that begin with absolute.
func (s *clusterStorage) listKeys(ctx context.Context, absolute string, opts storage.ListOptions, list runtime.Object) error {
	read := func(ctx context.Context) error { return s.read(ctx, absolute, opts, list) }
	return s.listTolerant(ctx, read(ctx), list, read)
}

// read is listKeys for readable objects.
func (s *clusterStorage) read(ctx context.Context, absolute string, opts storage.ListOptions, list runtime.Object) error {
	if !s.mayRepeat(ctx, opts) {
		return s.readStored(ctx, absolute, opts, list)
	}
	of := collection{s, path.Join("/", s.root, absolute) + "/"}
	return s.repeated.list(ctx, of, list, func() error { return s.readStored(ctx, absolute, opts, list) })
}

func (s *clusterStorage) readStored(ctx context.Context, absolute string, opts storage.ListOptions, list runtime.Object) error {
	custom, ok := list.(*unstructured.UnstructuredList)
	if !ok || !opts.Predicate.Empty() {
		return s.Interface.GetList(ctx, absolute, opts, list)
	}
	if c, _ := logicalcluster.From(ctx); c.Wildcard {
		return s.next.list(ctx, s, absolute, opts, custom)
	}
	return readList(ctx, s, absolute, opts, custom)
}

func (s *clusterStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if ctx.Value(modifiedOnEntryKey{}) != nil {
		return watchEntries(context.WithValue(ctx, modifiedOnEntryKey{}, nil), s, key, opts)
	}
	absolute, opts, err := s.collection(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return s.watchKeys(ctx, absolute, opts)
}

// watchKeys watches the objects with keys that begin with absolute.
func (s *clusterStorage) watchKeys(ctx context.Context, absolute string, opts storage.ListOptions) (watch.Interface, error) {
	opts.ProgressNotify = opts.Predicate.AllowWatchBookmarks
	if s.unshared && accountOf(ctx) == "" {
		return s.follow(ctx, absolute, opts) // an informer, which only reads
	}
	keys := streamKeys{storage: s, key: absolute, recursive: opts.Recursive}
	if opts.Predicate.Label != nil {
		keys.labels = opts.Predicate.Label.String()
	}
	if opts.Predicate.Field != nil {
		keys.fields = opts.Predicate.Field.String()
	}
	return s.streams.watch(ctx, keys, opts)
}
