package etcd

import (
	"context"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

const (
	// catchUpEntries is the number of entries of the raft log that stay in memory for followers that are behind. The embedded
	// etcd is a single member: a member that joins gets a snapshot.
	catchUpEntries = 1
	// logBytes is the number of written bytes after which the raft log in memory is compacted. etcd itself counts entries,
	// of which it keeps at least 100, whatever their size.
	logBytes = 16 << 20
	// logFiles is how many files of the write-ahead log are kept, by default of 64 MB each. A start reads all of them, in 0.4 s each. Two of
	// them contain several snapshots of the membership, in case that the last one is damaged.
	logFiles = 2
)

// compactor is a KV client that compacts the raft log after every logBytes that are written through it.
type compactor struct {
	etcdserverpb.KVClient
	// compact makes etcd write a snapshot of its membership and drop the entries before it when it applies the next entry.
	compact func()
	written atomic.Int64
}

// Put implements etcdserverpb.KVClient.
func (c *compactor) Put(ctx context.Context, r *etcdserverpb.PutRequest, options ...grpc.CallOption) (*etcdserverpb.PutResponse, error) {
	c.count(r)
	return c.KVClient.Put(ctx, r, options...)
}

// Txn implements etcdserverpb.KVClient.
func (c *compactor) Txn(ctx context.Context, r *etcdserverpb.TxnRequest, options ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	c.count(r)
	return c.KVClient.Txn(ctx, r, options...)
}

func (c *compactor) count(r proto.Message) {
	if size := int64(proto.Size(r)); c.written.Add(size) >= logBytes && c.written.Swap(0) >= logBytes {
		c.compact()
	}
}
