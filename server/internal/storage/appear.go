package storage

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Appears returns when any cluster stores an object of a resource, under any identity. It calls absent before it waits. A call that waits
// takes a few KiB: a watch of objects takes a hundred, and a server has very many resources without objects.
func (b *Backend) Appears(ctx context.Context, resource schema.GroupResource, absent func()) error {
	prefix := b.root + resourcePrefix(resource) + "/"
	found, err := b.client.Client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
	if err != nil {
		return fmt.Errorf("finding stored %s: %w", resource, err)
	}
	if len(found.Kvs) > 0 {
		return nil
	}
	absent()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := b.client.Client.Watch(clientv3.WithRequireLeader(ctx), prefix, clientv3.WithPrefix(),
		clientv3.WithRev(found.Header.Revision+1), clientv3.WithFilterDelete())
	for response := range watched {
		if err := response.Err(); err != nil {
			return fmt.Errorf("waiting for stored %s: %w", resource, err)
		}
		if len(response.Events) > 0 {
			return nil
		}
	}
	return fmt.Errorf("waiting for stored %s: %w", resource, context.Cause(ctx))
}
