package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// remainsPage is the number of objects in a page.
	remainsPage = 100
	// mostIdentities limits the identities of one resource that Identities reads, because any provider can add some.
	mostIdentities = 1000
)

// Remains finds the objects of custom resources by their keys, when their binding or logical cluster is deleted. It ignores the scope
// and the versions in the current schema, and does not convert, validate or admit objects.
type Remains struct {
	backend *Backend
	base    generic.RESTOptionsGetter
}

// Remains returns the Remains for custom resources that base stores.
func (b *Backend) Remains(base generic.RESTOptionsGetter) *Remains { return &Remains{b, base} }

// suffixOf returns the part of keys after a resource.
func suffixOf(identity string) string {
	if identity == "" {
		return custom
	}
	return "/" + identity
}

// Identities returns the identities under which the cluster of ctx stores objects of a resource that it has, or had, bound.
func (r *Remains) Identities(ctx context.Context, resource schema.GroupResource) ([]string, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	prefix := r.backend.root + resourcePrefix(resource) + "/"
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))
	var identities []string
	from := prefix
	for range mostIdentities {
		next, err := r.backend.client.Client.Get(ctx, from, end, clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil || len(next.Kvs) == 0 {
			return identities, err
		}
		identity, _, _ := strings.Cut(strings.TrimPrefix(string(next.Kvs[0].Key), prefix), "/")
		from = clientv3.GetPrefixRangeEnd(prefix + identity + "/")
		if "/"+identity == custom {
			continue
		}
		n, err := r.count(ctx, resource, identity, cluster)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			identities = append(identities, identity)
		}
	}
	return identities, nil
}

func (r *Remains) count(ctx context.Context, resource schema.GroupResource, identity string, cluster logicalcluster.Name) (int64, error) {
	prefix := r.backend.root + resourcePrefix(resource) + suffixOf(identity) + "/" + string(cluster) + "/"
	found, err := r.backend.client.Client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("counting the stored %s of cluster %s: %w", resource, cluster, err)
	}
	return found.Count, nil
}

// errHeld is the reason why an object is not deleted yet.
var errHeld = errors.New("the object has finalizers")

// Delete deletes the objects of a resource that the cluster of ctx stores under an identity; an empty identity means the objects of the
// cluster's own definition. If waits returns true for an object with finalizers, Delete marks the object as deleted, and it remains
// until the finalizers are removed. Delete returns how many objects remain.
func (r *Remains) Delete(ctx context.Context, resource schema.GroupResource, identity string,
	waits func(*unstructured.Unstructured) bool) (left int, err error) {
	err = r.each(ctx, resource, identity, func(ctx context.Context, s storage.Interface, key string, item *unstructured.Unstructured) error {
		preconditions := storage.NewUIDPreconditions(string(item.GetUID()))
		hadFinalizers := len(item.GetFinalizers()) > 0
		if hadFinalizers && waits(item) {
			left++
			if item.GetDeletionTimestamp() != nil {
				return nil
			}
			return s.GuaranteedUpdate(ctx, key, &unstructured.Unstructured{}, false, preconditions, storage.SimpleUpdate(markDeleted), nil)
		}
		err := s.Delete(ctx, key, &unstructured.Unstructured{}, preconditions, func(_ context.Context, live runtime.Object) error {
			if u, ok := live.(*unstructured.Unstructured); ok && !hadFinalizers && len(u.GetFinalizers()) > 0 {
				return errHeld
			}
			return nil
		}, nil, storage.DeleteOptions{})
		if errors.Is(err, errHeld) {
			left++
			return nil
		}
		return err
	})
	return left, err
}

// markDeleted marks an object as deleted, so that it is removed when it has no finalizers.
func markDeleted(obj runtime.Object) (runtime.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u.GetDeletionTimestamp() != nil {
		return obj, nil
	}
	u.SetDeletionTimestamp(ptr.To(metav1.Now()))
	u.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
	if g := u.GetGeneration(); g > 0 {
		u.SetGeneration(g + 1)
	}
	return u, nil
}

// errFound ends a search.
var errFound = errors.New("found")

// StoredIn returns a version, other than the known ones, in which the cluster of ctx stores an object of a resource under an identity;
// empty if there is none.
func (r *Remains) StoredIn(ctx context.Context, resource schema.GroupResource, identity string,
	known sets.Set[string]) (version string, err error) {
	err = r.each(ctx, resource, identity, func(_ context.Context, _ storage.Interface, _ string, item *unstructured.Unstructured) error {
		stored := item.GroupVersionKind().Version
		if known.Has(stored) || item.GetAnnotations()[UnreadableAnnotation] != "" {
			return nil
		}
		version = stored
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return version, err
}

// Relabel replaces the labels of the objects of a resource that the cluster of ctx stores under an identity by the labels that wanted
// returns for them.
func (r *Remains) Relabel(ctx context.Context, resource schema.GroupResource, identity string,
	wanted func(map[string]string) map[string]string) error {
	return r.each(ctx, resource, identity, func(ctx context.Context, s storage.Interface, key string, item *unstructured.Unstructured) error {
		if item.GetAnnotations()[UnreadableAnnotation] != "" {
			return nil // a stand-in, which must not be stored
		}
		return s.GuaranteedUpdate(ctx, key, &unstructured.Unstructured{}, false, storage.NewUIDPreconditions(string(item.GetUID())),
			storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
				if u, ok := obj.(*unstructured.Unstructured); ok {
					u.SetLabels(wanted(u.GetLabels()))
				}
				return obj, nil
			}), nil)
	})
}

// each calls do for every object of a resource that the cluster of ctx stores under an identity. An unreadable object is represented
// by a stand-in. Deleted or replaced objects are skipped.
func (r *Remains) each(ctx context.Context, resource schema.GroupResource, identity string,
	do func(ctx context.Context, s storage.Interface, key string, item *unstructured.Unstructured) error) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	if n, err := r.count(ctx, resource, identity, cluster); n == 0 || err != nil {
		return err
	}
	s, prefix, stop, err := r.open(resource, identity)
	if err != nil {
		return err
	}
	defer stop()
	ctx = withStandIns(ctx, shown)
	options := storage.ListOptions{Recursive: true, Predicate: storage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.Everything(), GetAttrs: storage.DefaultNamespaceScopedAttr, Limit: remainsPage,
	}}
	for {
		list := &unstructured.UnstructuredList{}
		if err := s.GetList(ctx, prefix, options, list); err != nil {
			return err
		}
		for i := range list.Items {
			item := &list.Items[i]
			key := prefix + "/" + item.GetName()
			if namespace := item.GetNamespace(); namespace != "" {
				key = prefix + "/" + namespace + "/" + item.GetName()
			}
			if err := do(ctx, s, key, item); err != nil && !storage.IsNotFound(err) && !storage.IsInvalidObj(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("%s %s/%s: %w", resource, item.GetNamespace(), item.GetName(), err)
			}
		}
		if options.Predicate.Continue = list.GetContinue(); options.Predicate.Continue == "" {
			return nil
		}
	}
}

// open returns the storage of a resource under an identity, for objects with or without a namespace.
func (r *Remains) open(resource schema.GroupResource, identity string) (s *clusterStorage, prefix string,
	stop factory.DestroyFunc, err error) {
	newFunc := func() runtime.Object { return &unstructured.Unstructured{Object: map[string]any{}} }
	suffix := suffixOf(identity)
	options, err := r.backend.parsed(r.base, suffix).GetRESTOptions(resource, newFunc())
	if err != nil {
		return nil, "", nil, err
	}
	g := &guard{
		backend: r.backend, resource: resource, codec: options.StorageConfig.Codec, newFunc: newFunc, above: resourcePrefix(resource) + "/",
		kind: schema.GroupVersionKind{Group: resource.Group, Version: "v1", Kind: resource.Resource},
	}
	s, stop, err = r.backend.open(options.StorageConfig, options.ResourcePrefix, g,
		func() runtime.Object { return &unstructured.UnstructuredList{} })
	return s, options.ResourcePrefix, stop, err
}
