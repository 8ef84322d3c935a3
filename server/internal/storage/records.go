package storage

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Record returns what the server itself stored under a name, and nothing if it stored nothing.
func (b *Backend) Record(ctx context.Context, name string) (string, error) {
	found, err := b.client.Client.Get(ctx, b.recordKey(name))
	if err != nil || len(found.Kvs) == 0 {
		return "", wrapRecord(name, err)
	}
	return string(found.Kvs[0].Value), nil
}

// SetRecord stores a value under a name for the server itself.
func (b *Backend) SetRecord(ctx context.Context, name, value string) error {
	_, err := b.client.Client.Put(ctx, b.recordKey(name), value)
	return wrapRecord(name, err)
}

// ClaimRecord stores a value under a name that has none, and returns the value that it has then.
func (b *Backend) ClaimRecord(ctx context.Context, name, value string) (string, error) {
	key := b.recordKey(name)
	done, err := b.client.Client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return "", wrapRecord(name, err)
	}
	if !done.Succeeded {
		value = string(done.Responses[0].GetResponseRange().Kvs[0].Value)
	}
	return value, nil
}

func (b *Backend) recordKey(name string) string { return b.root + ownPrefix + "/records/" + name }

func wrapRecord(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("record %s of the server: %w", name, err)
}

// Usage returns the number of keys of this server in etcd, and the size of etcd in bytes.
func (b *Backend) Usage(ctx context.Context) (keys, bytes int64, err error) {
	found, err := b.client.Client.Get(ctx, b.root+"/", clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithSerializable())
	if err != nil {
		return 0, 0, err
	}
	status, err := b.status(ctx, found.Header.Revision)
	if err != nil || status == nil {
		return found.Count, 0, err
	}
	return found.Count, status.DbSizeInUse, nil
}
