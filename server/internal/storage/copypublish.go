package storage

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Raise makes new revisions until one is later than above. Each is a small write: raising by a million takes minutes.
func (b *Backend) Raise(ctx context.Context, above int64) error {
	writers, ctx := errgroup.WithContext(ctx)
	for range raising {
		writers.Go(func() error {
			for {
				written, err := b.client.Client.Put(ctx, progressKey, "")
				if err != nil {
					return fmt.Errorf("raising the revision of etcd above %d: %w", above, err)
				}
				if written.Header.Revision > above {
					return nil
				}
			}
		})
	}
	return writers.Wait()
}

// Publish ends the arrival of the cluster of ctx, whose fence is settling: in one transaction, it changes the LogicalCluster, records the
// revision as the first of the cluster in this store, and removes the fence. The revision is later than above. Calling it again returns
// the same revision.
func (c *Copies) Publish(ctx context.Context, fence *Fence, above int64, change func(object []byte) ([]byte, error)) (int64, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return 0, err
	}
	if fence.State != FenceSettling {
		return 0, fmt.Errorf("publishing logical cluster %q: its fence is %s", cluster, fence.State)
	}
	floor := c.backend.fences.floor(cluster)
	arrived, err := c.backend.client.Client.Get(ctx, floor)
	if err != nil {
		return 0, err
	}
	if len(arrived.Kvs) == 1 && string(arrived.Kvs[0].Value) == string(fence.Migration) {
		return arrived.Kvs[0].ModRevision, nil
	}
	if arrived.Header.Revision <= above {
		return 0, fmt.Errorf("publishing logical cluster %q: the revision %d is not later than %d", cluster, arrived.Header.Revision, above)
	}
	key, stored, revision, err := c.changed(ctx, cluster, change)
	if err != nil {
		return 0, fmt.Errorf("publishing logical cluster %q: %w", cluster, err)
	}
	fenceKey := c.backend.fences.key(cluster)
	done, err := c.backend.client.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(fenceKey), "=", fence.value()), clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(stored)), clientv3.OpPut(floor, string(fence.Migration)), clientv3.OpDelete(fenceKey)).Commit()
	if err == nil && !done.Succeeded {
		err = errFenceChanged
	}
	if err != nil {
		return 0, fmt.Errorf("publishing logical cluster %q: %w", cluster, outOfSpace(err))
	}
	return done.Header.Revision, nil
}

// Reopen lets another cluster with the name of one that has moved away be created in this store: it deletes what remains behind the fence,
// and then, in one transaction, removes the fence and records the revision as the first of the cluster in this store. So clients and
// informers that have resource versions of the former one list again. created identifies the new cluster.
func (c *Copies) Reopen(ctx context.Context, fence *Fence, created types.UID) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	if fence.State != FenceMoved {
		return fmt.Errorf("creating logical cluster %q again: its fence is %s", cluster, fence.State)
	}
	if err := c.Clear(ctx, fence); err != nil {
		return err
	}
	fenceKey := c.backend.fences.key(cluster)
	done, err := c.backend.client.Client.Txn(ctx).If(clientv3.Compare(clientv3.Value(fenceKey), "=", fence.value())).
		Then(clientv3.OpPut(c.backend.fences.floor(cluster), string(created)), clientv3.OpDelete(fenceKey)).Commit()
	if err == nil && !done.Succeeded {
		err = errFenceChanged
	}
	if err != nil {
		return fmt.Errorf("creating logical cluster %q again: %w", cluster, outOfSpace(err))
	}
	return nil
}

// logicalClusters is the resource of the object that describes a cluster.
var logicalClusters = corev1alpha1.Resource("logicalclusters")

// LogicalCluster returns the stored LogicalCluster of the cluster of ctx, also behind a fence; nil if there is none.
func (c *Copies) LogicalCluster(ctx context.Context) ([]byte, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	_, object, _, err := c.described(ctx, cluster)
	return object, err
}

// described returns the stored LogicalCluster of a cluster with its key and revision; nil if there is none.
func (c *Copies) described(ctx context.Context, cluster logicalcluster.Name) (key string, object []byte, revision int64, err error) {
	key = c.backend.root + resourcePrefix(logicalClusters) + custom + "/" + string(cluster) + "/" + corev1alpha1.LogicalClusterName
	found, err := c.backend.client.Client.Get(ctx, key)
	if err != nil || len(found.Kvs) == 0 {
		return key, nil, 0, err
	}
	transformer, err := c.transformer(logicalClusters)
	if err != nil {
		return key, nil, 0, err
	}
	object, _, err = transformer.TransformFromStorage(ctx, found.Kvs[0].Value, value.DefaultContext(key))
	return key, object, found.Kvs[0].ModRevision, err
}

// changed returns the LogicalCluster of a cluster after a change, in its stored form, with its key and the revision before.
func (c *Copies) changed(ctx context.Context, cluster logicalcluster.Name,
	change func([]byte) ([]byte, error)) (key string, stored []byte, revision int64, err error) {
	key, object, revision, err := c.described(ctx, cluster)
	if err == nil && object == nil {
		err = errors.New("it has no LogicalCluster")
	}
	if err == nil {
		object, err = change(object)
	}
	if err != nil {
		return "", nil, 0, err
	}
	transformer, err := c.transformer(logicalClusters)
	if err == nil {
		stored, err = transformer.TransformToStorage(ctx, object, value.DefaultContext(key))
	}
	return key, stored, revision, err
}
