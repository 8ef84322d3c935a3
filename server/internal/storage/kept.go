package storage

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keptPrefix follows the root in the keys of what a shard keeps of other shards. The group of a tenant's resource contains a dot, so that
// no resource has this prefix.
const keptPrefix = "/kcp-kept/"

// keptPage is how many values are read at a time.
const keptPage = 500

// Kept stores copies of objects of other shards, for the server itself. They are not objects of this shard: no client reads them here.
type Kept struct{ backend *Backend }

// Kept returns what this shard keeps of other shards.
func (b *Backend) Kept() *Kept { return &Kept{b} }

func (k *Kept) prefix() string { return k.backend.root + keptPrefix }

// All calls each for every value, in the order of the names.
func (k *Kept) All(ctx context.Context, each func(name string, value []byte)) error {
	prefix := k.prefix()
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		page, err := k.backend.client.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(keptPage))
		if err != nil {
			return fmt.Errorf("reading the stored objects of other shards: %w", err)
		}
		for _, kv := range page.Kvs {
			each(strings.TrimPrefix(string(kv.Key), prefix), kv.Value)
			from = string(kv.Key) + "\x00"
		}
		if !page.More {
			return nil
		}
	}
}

// Put stores a value.
func (k *Kept) Put(ctx context.Context, name string, value []byte) error {
	if _, err := k.backend.client.Client.Put(ctx, k.prefix()+name, string(value)); err != nil {
		return fmt.Errorf("storing %s of another shard: %w", name, err)
	}
	return nil
}

// Delete removes a value, if it exists.
func (k *Kept) Delete(ctx context.Context, name string) error {
	if _, err := k.backend.client.Client.Delete(ctx, k.prefix()+name); err != nil {
		return fmt.Errorf("deleting the stored %s of another shard: %w", name, err)
	}
	return nil
}
