package storage

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// writtenKeys and writtenBytes limit a transaction: by default, etcd rejects more than 128 operations or 1.5 MiB. A larger object is
	// written alone, as by any other write.
	writtenKeys, writtenBytes = 100, 1 << 20
	// leaseStep rounds the times of leases up, so that few leases are made.
	leaseStep = 60
	// mostEntryBytes limits an object from another shard: more than the limit of any request.
	mostEntryBytes = 16 << 20
	// raising limits the concurrent writes that make new revisions.
	raising = 16
)

// Apply writes entries of the cluster of ctx behind its fence, in their order. The fence must be that of an arriving cluster.
func (c *Copies) Apply(ctx context.Context, fence *Fence, entries []Entry) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	if fence.State != FenceArriving {
		return fmt.Errorf("writing a copy of logical cluster %q: its fence is %s", cluster, fence.State)
	}
	var ops []clientv3.Op
	bytes, contains, leases := 0, map[string]bool{}, map[int64]clientv3.LeaseID{}
	flush := func() error {
		defer func() { ops, bytes = nil, 0; clear(contains) }()
		return c.behind(ctx, cluster, fence, ops)
	}
	for _, entry := range entries {
		op, err := c.write(ctx, cluster, entry, leases)
		if err != nil {
			return err
		}
		if len(ops) == writtenKeys || bytes+entry.size() > writtenBytes || contains[entry.Key] {
			if err := flush(); err != nil {
				return err
			}
		}
		ops, bytes, contains[entry.Key] = append(ops, op), bytes+entry.size(), true
	}
	return flush()
}

// behind changes keys in a transaction that compares that the fence of their cluster is there.
func (c *Copies) behind(ctx context.Context, cluster logicalcluster.Name, fence *Fence, ops []clientv3.Op) error {
	if len(ops) == 0 {
		return nil
	}
	done, err := c.backend.client.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(c.backend.fences.key(cluster)), "=", fence.value())).Then(ops...).Commit()
	if err == nil && !done.Succeeded {
		err = errFenceChanged
	}
	if err != nil {
		return fmt.Errorf("writing behind the fence of logical cluster %q: %w", cluster, outOfSpace(err))
	}
	return nil
}

// write returns the operation that writes an entry, which comes from another shard.
func (c *Copies) write(ctx context.Context, cluster logicalcluster.Name, entry Entry,
	leases map[int64]clientv3.LeaseID) (clientv3.Op, error) {
	k, err := splitKey(entry.Key)
	if err != nil || k.cluster != cluster || cluster.IsSystem() || len(entry.Value) > mostEntryBytes || entry.Seconds < 0 {
		return clientv3.Op{}, apierrors.NewBadRequest(fmt.Sprintf("entry with key %.200q cannot be an object of logical cluster %q", entry.Key,
			cluster))
	}
	key := c.backend.root + entry.Key
	if entry.Deleted {
		return clientv3.OpDelete(key), nil
	}
	transformer, err := c.transformer(k.resource)
	if err != nil {
		return clientv3.Op{}, err
	}
	stored, err := transformer.TransformToStorage(ctx, entry.Value, value.DefaultContext(key))
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encoding etcd key %s: %w", entry.Key, err)
	}
	if entry.Seconds == 0 {
		return clientv3.OpPut(key, string(stored)), nil
	}
	seconds := (entry.Seconds + leaseStep - 1) / leaseStep * leaseStep
	if _, ok := leases[seconds]; !ok {
		granted, err := c.backend.client.Client.Grant(ctx, seconds)
		if err != nil {
			return clientv3.Op{}, err
		}
		leases[seconds] = granted.ID
	}
	return clientv3.OpPut(key, string(stored), clientv3.WithLease(leases[seconds])), nil
}

// Clear deletes all keys of the cluster of ctx behind its fence, which must hide them from reads across all clusters.
func (c *Copies) Clear(ctx context.Context, fence *Fence) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	if fence.State != FenceArriving && fence.State != FenceMoved {
		return fmt.Errorf("deleting the remains of logical cluster %q: it may still be held here", cluster)
	}
	for after := ""; ; {
		found, next, _, err := c.Collections(ctx, 0, after)
		if err != nil {
			return err
		}
		for _, collection := range found {
			if err := c.clear(ctx, cluster, fence, collection); err != nil {
				return err
			}
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// clear deletes the keys of a cluster in a collection.
func (c *Copies) clear(ctx context.Context, cluster logicalcluster.Name, fence *Fence, collection string) error {
	prefix := c.prefix(collection, cluster)
	for {
		page, err := c.backend.client.Client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(writtenKeys))
		if err != nil || len(page.Kvs) == 0 {
			return err
		}
		ops := make([]clientv3.Op, len(page.Kvs))
		for i, kv := range page.Kvs {
			ops[i] = clientv3.OpDelete(string(kv.Key))
		}
		if err := c.behind(ctx, cluster, fence, ops); err != nil {
			return err
		}
	}
}
