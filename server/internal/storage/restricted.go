package storage

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kcplane/kcp/server/logicalcluster"
)

type restrictionKey struct{}

// WithRestriction returns a context in which only objects with labels that match selector can be read or written: other
// objects do not exist for its requests. It adds to the restriction of ctx.
func WithRestriction(ctx context.Context, selector labels.Selector) context.Context {
	if already, ok := restriction(ctx); ok {
		selector = both(already, selector)
	}
	return context.WithValue(ctx, restrictionKey{}, selector)
}

// WithoutRestriction returns a context for reads and writes of the server itself on behalf of a request.
func WithoutRestriction(ctx context.Context) context.Context {
	return context.WithValue(ctx, restrictionKey{}, nil)
}

func restriction(ctx context.Context) (labels.Selector, bool) {
	s, ok := ctx.Value(restrictionKey{}).(labels.Selector)
	return s, ok
}

// both selects the objects that both a and b select.
func both(a, b labels.Selector) labels.Selector {
	requirements, ok := b.Requirements()
	if !ok {
		return b // nothing
	}
	return a.Add(requirements...)
}

// restricted limits the requests of a restricted context to the objects that they may access.
type restricted struct {
	storage.Interface
	resource schema.GroupResource
	lane     string // of watches across all clusters
}

func matches(selector labels.Selector, obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	return err == nil && selector.Matches(labels.Set(m.GetLabels()))
}

// refuse returns the error for a write after which the object would not be accessible.
func (s restricted) refuse(obj runtime.Object) error {
	name := ""
	if m, err := meta.Accessor(obj); err == nil {
		name = m.GetName()
	}
	return apierrors.NewForbidden(s.resource, name, errors.New("only objects that match the selector of an accepted permission "+
		"claim can be written here"))
}

func (s restricted) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if selector, ok := restriction(ctx); ok && !matches(selector, obj) {
		return s.refuse(obj)
	}
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

func (s restricted) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if err := s.Interface.Get(ctx, key, opts, out); err != nil {
		return err
	}
	selector, ok := restriction(ctx)
	if !ok || matches(selector, out) {
		return nil
	}
	if err := runtime.SetZeroValue(out); err != nil || opts.IgnoreNotFound {
		return err
	}
	return storage.NewKeyNotFoundError(key, 0)
}

func (s restricted) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	if selector, ok := restriction(ctx); ok {
		inner := validate
		validate = func(ctx context.Context, obj runtime.Object) error {
			if !matches(selector, obj) {
				return storage.NewKeyNotFoundError(key, 0)
			}
			return inner(ctx, obj)
		}
	}
	return s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

func (s restricted) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	if selector, ok := restriction(ctx); ok {
		inner := update
		update = func(in runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
			if response.ResourceVersion != 0 && !matches(selector, in) {
				return nil, nil, storage.NewKeyNotFoundError(key, 0)
			}
			obj, ttl, err := inner(in, response)
			if err == nil && !matches(selector, obj) {
				err = s.refuse(obj)
			}
			return obj, ttl, err
		}
	}
	return s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
}

// narrow adds the restriction of ctx to the selector of a list or watch.
func narrow(ctx context.Context, opts storage.ListOptions) storage.ListOptions {
	selector, ok := restriction(ctx)
	if !ok {
		return opts
	}
	if opts.Predicate.Label != nil {
		selector = both(opts.Predicate.Label, selector)
	}
	opts.Predicate.Label = selector
	return opts
}

// Watch uses a separate stream of etcd for watches across all clusters, which are those of the informers: see
// Backend.Progress.
func (s restricted) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if cluster, ok := logicalcluster.From(ctx); ok && cluster.Wildcard {
		ctx = inLane(ctx, s.lane)
	}
	return s.Interface.Watch(ctx, key, opts)
}
