package storage

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// rangesPerRead are the ranges that one transaction reads: etcd refuses more than 128 operations.
const rangesPerRead = 120

// Held returns those of the resources of which the cluster of ctx stores any object, in one namespace unless that is
// empty. It reads no object, and all resources at once.
func (b *Backend) Held(ctx context.Context, resources []schema.GroupResource, namespace string) ([]schema.GroupResource, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	var reads []clientv3.Op
	for _, r := range resources {
		for _, suffix := range []string{"", custom} {
			prefix := b.root + resourcePrefix(r) + suffix + "/" + string(cluster) + "/"
			if namespace != "" {
				prefix += namespace + "/"
			}
			reads = append(reads, clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1)))
		}
	}
	var held []schema.GroupResource
	n := 0
	for part := range slices.Chunk(reads, rangesPerRead) {
		found, err := b.client.Client.Txn(ctx).Then(part...).Commit()
		if err != nil {
			return nil, fmt.Errorf("looking for what cluster %s holds: %w", cluster, err)
		}
		for _, r := range found.Responses {
			resource := resources[n/2]
			if n++; len(r.GetResponseRange().Kvs) > 0 && !slices.Contains(held, resource) {
				held = append(held, resource)
			}
		}
	}
	return held, nil
}
