package storage

import (
	"context"
	"fmt"
	"path"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// rangesPerRead is the number of ranges that one transaction reads: etcd rejects more than 128 operations.
const rangesPerRead = 120

// StoredResources returns the resources for which the cluster of ctx stores any object, in one namespace unless that is empty.
// It does not read objects, and checks all resources at once.
func (b *Backend) StoredResources(ctx context.Context, resources []schema.GroupResource, namespace string) ([]schema.GroupResource, error) {
	var held []schema.GroupResource
	err := b.ranges(ctx, resources, namespace, func(r schema.GroupResource, found *etcdserverpb.RangeResponse) {
		if len(found.Kvs) > 0 && !slices.Contains(held, r) {
			held = append(held, r)
		}
	}, clientv3.WithKeysOnly(), clientv3.WithLimit(1))
	return held, err
}

// Count returns how many objects of the resources the cluster of ctx stores. It does not read them.
func (b *Backend) Count(ctx context.Context, resources []schema.GroupResource) (int64, error) {
	var n int64
	err := b.ranges(ctx, resources, "", func(_ schema.GroupResource, found *etcdserverpb.RangeResponse) { n += found.Count },
		clientv3.WithCountOnly())
	return n, err
}

// Versions returns the resource versions of the objects of a cluster scoped resource that the cluster of ctx stores, by name, and
// the current one. It does not read the objects.
func (b *Backend) Versions(ctx context.Context, resource schema.GroupResource) (stored map[string]uint64, now uint64, err error) {
	stored = map[string]uint64{}
	err = b.ranges(ctx, []schema.GroupResource{resource}, "", func(_ schema.GroupResource, found *etcdserverpb.RangeResponse) {
		now = uint64(found.Header.GetRevision())
		for _, kv := range found.Kvs {
			stored[path.Base(string(kv.Key))] = uint64(kv.ModRevision)
		}
	}, clientv3.WithKeysOnly())
	return stored, now, err
}

// Identify sets the function that returns the identity of a bound resource in a cluster, and the empty string for other
// resources. It must be called before the first request.
func (b *Backend) Identify(of func(cluster logicalcluster.Name, resource schema.GroupResource) string) {
	b.identity = of
}

// ranges reads, with options, the key ranges in which the cluster of ctx stores the objects of each resource.
func (b *Backend) ranges(ctx context.Context, resources []schema.GroupResource, namespace string,
	each func(schema.GroupResource, *etcdserverpb.RangeResponse), options ...clientv3.OpOption) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	options = append(options, clientv3.WithPrefix())
	var reads []clientv3.Op
	var of []schema.GroupResource // the resource of each read
	for _, r := range resources {
		for _, prefix := range b.prefixesOf(cluster, r) {
			prefix = b.root + prefix + "/" + string(cluster) + "/"
			if namespace != "" {
				prefix += namespace + "/"
			}
			reads, of = append(reads, clientv3.OpGet(prefix, options...)), append(of, r)
		}
	}
	n := 0
	for part := range slices.Chunk(reads, rangesPerRead) {
		found, err := b.client.Client.Txn(ctx).Then(part...).Commit()
		if err != nil {
			return fmt.Errorf("counting the objects of cluster %s: %w", cluster, err)
		}
		for _, r := range found.Responses {
			each(of[n], r.GetResponseRange())
			n++
		}
	}
	return nil
}

// prefixesOf returns the prefixes of the keys of a resource in a cluster, after the root and before the cluster. No definition can have the
// name of a resource that is built in or has a Go type, so that its keys have one prefix.
func (b *Backend) prefixesOf(cluster logicalcluster.Name, resource schema.GroupResource) []string {
	prefix := resourcePrefix(resource)
	if identity := b.identity(cluster, resource); identity != "" {
		return []string{prefix, prefix + "/" + identity}
	}
	if known, ok := b.readerOf(resource); ok {
		return []string{known.prefix}
	}
	return []string{prefix, prefix + custom}
}
