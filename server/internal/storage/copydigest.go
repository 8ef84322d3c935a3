package storage

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Digest is the number of the keys of a cluster, and the sum of the hashes of each key with its value, modulo 2^256. A sum depends neither
// on the store nor on an order, so that the change of a digest can be calculated from the changes of the cluster. Keys with a lease are
// left out, because etcd deletes them at any time.
type Digest struct {
	Keys int64     `json:"keys"`
	Sum  [4]uint64 `json:"sum"` // the lowest bits first
}

// hash returns the digest of one key.
func hash(key string, value []byte) Digest {
	sum := sha256.New()
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(key))))
	sum.Write([]byte(key))
	sum.Write(value)
	d := Digest{Keys: 1}
	for i, bytes := 0, sum.Sum(nil); i < len(d.Sum); i++ {
		d.Sum[i] = binary.BigEndian.Uint64(bytes[8*i:])
	}
	return d
}

func (d *Digest) add(other Digest) {
	d.Keys += other.Keys
	carry := uint64(0)
	for i := range d.Sum {
		d.Sum[i], carry = bits.Add64(d.Sum[i], other.Sum[i], carry)
	}
}

func (d *Digest) subtract(other Digest) {
	d.Keys -= other.Keys
	borrow := uint64(0)
	for i := range d.Sum {
		d.Sum[i], borrow = bits.Sub64(d.Sum[i], other.Sum[i], borrow)
	}
}

// Digest returns the digest, at a revision, of the cluster of ctx in collections.
func (c *Copies) Digest(ctx context.Context, revision int64, collections []string) (digest Digest, err error) {
	for _, collection := range collections {
		for after := ""; ; {
			entries, next, err := c.Page(ctx, revision, collection, after)
			if err != nil {
				return Digest{}, err
			}
			for _, entry := range entries {
				if entry.Seconds == 0 && !entry.Deleted {
					digest.add(hash(entry.Key, entry.Value))
				}
			}
			if after = next; after == "" {
				break
			}
		}
	}
	return digest, nil
}

// DigestOfChanges returns the digest of the cluster of ctx at the revision until minus that at the revision after. It reads only what
// changed between them. The store must have written the later one before the call.
func (c *Copies) DigestOfChanges(ctx context.Context, after, until int64) (change Digest, err error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil || after == until {
		return Digest{}, err
	}
	err = c.watch(ctx, after, func(event *clientv3.Event) (more bool, err error) {
		if event.Kv.ModRevision > until {
			return false, nil
		}
		if !c.isIn(cluster, event.Kv) {
			return true, nil
		}
		if event.PrevKv == nil && !event.IsCreate() {
			return false, compactedError(rpctypes.ErrCompacted)
		}
		before, err := c.hash(ctx, event.PrevKv)
		if err != nil {
			return false, err
		}
		change.subtract(before)
		if event.Type != clientv3.EventTypePut {
			return true, nil
		}
		now, err := c.hash(ctx, event.Kv)
		change.add(now)
		return err == nil, err
	}, clientv3.WithPrevKV())
	if err != nil {
		return Digest{}, err
	}
	return change, nil
}

// hash returns the digest of a stored key, which is empty for none and for a key with a lease.
func (c *Copies) hash(ctx context.Context, kv *mvccpb.KeyValue) (Digest, error) {
	if kv == nil || kv.Lease != 0 {
		return Digest{}, nil
	}
	key := strings.TrimPrefix(string(kv.Key), c.backend.root)
	k, err := splitKey(key)
	if err != nil {
		return Digest{}, err
	}
	transformer, err := c.transformer(k.resource)
	if err != nil {
		return Digest{}, err
	}
	object, _, err := transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err != nil {
		return Digest{}, fmt.Errorf("reading etcd key %s: %w", key, err)
	}
	return hash(key, object), nil
}
