package storage

import (
	"context"
	"errors"
	"fmt"
	"path"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Contents reads and deletes objects of several resources of a logical cluster at a time, when the logical cluster is deleted. Only
// built-in resources, and those with a Go type, are readable.
//
// Invariants:
//   - An object is deleted only in the revision in which it was read: finalizers that were added since keep it.
//   - A transaction deletes at most one object of a resource. See Transaction for the reason.
//   - Each transaction compares that the holder, the LogicalCluster, is the one that was read. The objects of a logical cluster that was
//     created again under the same name are not deleted.
type Contents struct {
	backend *Backend
	holder  schema.GroupResource
}

// Contents returns the Contents of logical clusters with a holder, which is a resource with a Go type.
func (b *Backend) Contents(holder schema.GroupResource) *Contents { return &Contents{b, holder} }

// StoredObject is an object as it is stored.
type StoredObject struct {
	Resource schema.GroupResource
	// Object has the metadata; nil if the stored value cannot be decoded.
	Object metav1.Object

	key               string
	created, revision int64
}

// readers are the resources of which objects can be decoded.
func (b *Backend) addReader(prefix string, g *guard) { b.readers.Store(g.resource, reader{prefix, g}) }

type reader struct {
	prefix string // of keys, after the root and before the cluster
	*guard
}

// readerOf returns the reader of a resource, and whether there is one.
func (b *Backend) readerOf(resource schema.GroupResource) (reader, bool) {
	found, ok := b.readers.Load(resource)
	if !ok {
		return reader{}, false
	}
	return found.(reader), true
}

// Read returns the holder of the cluster of ctx, nil if there is none, and at most limit objects of each of the readable resources, in the
// order of namespaces. more are the resources with others.
func (c *Contents) Read(ctx context.Context, resources []schema.GroupResource, limit int) (holder *StoredObject, objects []StoredObject,
	more []schema.GroupResource, err error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	var readers []reader
	var reads []clientv3.Op
	for _, resource := range append([]schema.GroupResource{c.holder}, resources...) {
		if r, ok := c.backend.readerOf(resource); ok {
			readers = append(readers, r)
			reads = append(reads, clientv3.OpGet(c.backend.root+r.prefix+"/"+string(cluster)+"/", clientv3.WithPrefix(),
				clientv3.WithLimit(int64(limit))))
		}
	}
	found, _, err := retry(ctx, 0, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return c.backend.client.Client.Txn(ctx).Then(reads...).Commit()
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("reading the objects of cluster %s: %w", cluster, err)
	}
	for i, response := range found.Responses {
		part := response.GetResponseRange()
		if part.More {
			more = append(more, readers[i].resource)
		}
		for _, kv := range part.Kvs {
			object := readers[i].read(ctx, kv)
			if object.Resource == c.holder {
				holder = &object
			} else {
				objects = append(objects, object)
			}
		}
	}
	return holder, objects, more, nil
}

// read decodes a stored object.
func (r reader) read(ctx context.Context, kv *mvccpb.KeyValue) StoredObject {
	stored := StoredObject{Resource: r.resource, key: string(kv.Key), created: kv.CreateRevision, revision: kv.ModRevision}
	data, _, err := r.Transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err != nil {
		return stored
	}
	obj, _, err := r.codec.Decode(data, nil, r.newFunc())
	if err != nil {
		return stored
	}
	if m, err := meta.Accessor(obj); err == nil && m.GetName() == path.Base(stored.key) {
		stored.Object = m
	}
	return stored
}

// errContentChanged is the reason of conflicts.
var errContentChanged = errors.New("it was changed while the content of its logical cluster was deleted")

// Delete deletes objects of different resources of the cluster of ctx in one transaction, or none of them if any of them, or the holder, is
// another one than Read returned. The holder itself can be one of the objects.
func (c *Contents) Delete(ctx context.Context, holder *StoredObject, objects []StoredObject) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	reach := c.backend.client.Kubernetes.(transactions)
	if err := reach.refuseWrite(); err != nil {
		return err
	}
	defer fairqueue.From(ctx).Store(0)()
	unchanged := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(holder.key), "=", holder.created)}
	var deletions, reads []clientv3.Op
	for _, o := range objects {
		unchanged = append(unchanged, clientv3.Compare(clientv3.ModRevision(o.key), "=", o.revision))
		deletions = append(deletions, clientv3.OpDelete(o.key))
	}
	if c.backend.fences != nil {
		fence, err := c.backend.fences.of(ctx, holder.key)
		if err != nil {
			return err
		}
		unchanged, reads = append(unchanged, clientv3.Compare(clientv3.CreateRevision(fence), "=", 0)), append(reads, clientv3.OpGet(fence))
	}
	defer func() {
		for _, o := range objects {
			reach.sizes.changed(o.key)
		}
	}()
	done, _, err := retry(ctx, firstAnswer, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		done, err := reach.kv.Txn(ctx).If(unchanged...).Then(deletions...).Else(reads...).Commit()
		if err == nil && !done.Succeeded {
			err = fencedBy(done.Responses)
		}
		return done, err
	})
	if err != nil {
		return fmt.Errorf("deleting the objects of cluster %s: %w", cluster, err)
	}
	if !done.Succeeded {
		return apierrors.NewConflict(c.holder, path.Base(holder.key), errContentChanged)
	}
	c.backend.fences.wrote(ctx)
	for _, o := range objects {
		c.backend.noteWrite(o.Resource, cluster, done.Header.Revision)
		c.backend.limit.Deleted(cluster, o.Resource)
	}
	return nil
}
