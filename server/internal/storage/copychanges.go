package storage

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Changes returns what changed in the cluster of ctx after a revision, with the last change of each key, and the revision until which this
// is complete: the current one of this call, unless the response IsFull. Behind a fence, the last changes are those of a call that returns
// no entry at a revision after the fence.
func (c *Copies) Changes(ctx context.Context, after int64) (entries []Entry, revision int64, err error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, 0, err
	}
	// The watch delivers the changes in the order of their revisions: what follows is complete when this key arrives.
	mark, err := c.backend.client.Client.Put(ctx, c.backend.root+ownPrefix+"/progress", "")
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	size, leases, indexes := 0, map[int64]int64{}, map[string]int{}
	watched := c.backend.client.Client.Watch(clientv3.WithRequireLeader(ctx), c.backend.root+"/", clientv3.WithPrefix(),
		clientv3.WithRev(after+1))
	for response := range watched {
		if err := response.Err(); err != nil {
			return nil, 0, compactedError(err)
		}
		for _, event := range response.Events {
			if event.Kv.ModRevision > revision && size >= copyBytes {
				return entries, revision, nil
			}
			revision = event.Kv.ModRevision
			k, err := splitKey(strings.TrimPrefix(string(event.Kv.Key), c.backend.root))
			if err != nil || k.cluster != cluster {
				continue
			}
			entry := Entry{Key: strings.TrimPrefix(string(event.Kv.Key), c.backend.root), Deleted: true}
			if event.Type == clientv3.EventTypePut {
				if entry, err = c.read(ctx, string(event.Kv.Key), event.Kv.Value, event.Kv.Lease, leases); err != nil {
					return nil, 0, err
				}
			}
			i, changed := indexes[entry.Key]
			if !changed {
				i, entries = len(entries), append(entries, Entry{})
				indexes[entry.Key] = i
			}
			size += entry.size() - entries[i].size()
			entries[i] = entry
		}
		if revision >= mark.Header.Revision {
			return entries, revision, nil
		}
	}
	return nil, 0, fmt.Errorf("following the changes of logical cluster %q: %w", cluster, context.Cause(ctx))
}

// IsFull reports whether a response with changes ended because of its size, so that more may follow.
func IsFull(changes []Entry) bool {
	size := 0
	for _, entry := range changes {
		size += entry.size()
	}
	return size >= copyBytes
}

// compactedError returns the error for a revision that etcd no longer has: the copy must begin again.
func compactedError(err error) error {
	if errors.Is(err, rpctypes.ErrCompacted) {
		return apierrors.NewResourceExpired("the revision of the copy was compacted; copy again from the beginning")
	}
	return err
}

// Digest returns a hash of the keys and values, at a revision, of the cluster of ctx in collections, and their number. It does not
// depend on the store. Keys with a lease are left out, because etcd deletes them at any time.
func (c *Copies) Digest(ctx context.Context, revision int64, collections []string) (digest string, keys int64, err error) {
	sum := sha256.New()
	add := func(part []byte) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		sum.Write(length[:])
		sum.Write(part)
	}
	for _, collection := range collections {
		for after := ""; ; {
			entries, next, err := c.Page(ctx, revision, collection, after)
			if err != nil {
				return "", 0, err
			}
			for _, entry := range entries {
				if entry.Seconds > 0 || entry.Deleted {
					continue
				}
				add([]byte(entry.Key))
				add(entry.Value)
				keys++
			}
			if after = next; after == "" {
				break
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), keys, nil
}
