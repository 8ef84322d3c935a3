package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
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
	size, leases, indexes := 0, map[int64]int64{}, map[string]int{}
	err = c.watch(ctx, after, func(event *clientv3.Event) (more bool, err error) {
		if event.Kv.ModRevision > revision && size >= copyBytes {
			return false, nil
		}
		revision = event.Kv.ModRevision
		if !c.isIn(cluster, event.Kv) {
			return true, nil
		}
		entry := Entry{Key: strings.TrimPrefix(string(event.Kv.Key), c.backend.root), Deleted: true}
		if event.Type == clientv3.EventTypePut {
			if entry, err = c.read(ctx, string(event.Kv.Key), event.Kv.Value, event.Kv.Lease, leases); err != nil {
				return false, err
			}
		}
		i, changed := indexes[entry.Key]
		if !changed {
			i, entries = len(entries), append(entries, Entry{})
			indexes[entry.Key] = i
		}
		size += entry.size() - entries[i].size()
		entries[i] = entry
		return true, nil
	})
	if err != nil {
		return nil, 0, err
	}
	return entries, revision, nil
}

// watch calls use with the events of all clusters after a revision, in order, until it returns false, or has received everything that was
// written before this call. The last event is one of this call.
func (c *Copies) watch(
	ctx context.Context, after int64, use func(*clientv3.Event) (more bool, err error), options ...clientv3.OpOption,
) error {
	// The watch delivers the changes in the order of their revisions: what precedes this key is complete when it arrives.
	mark, err := c.backend.client.Client.Put(ctx, c.backend.root+ownPrefix+"/progress", "")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options = append([]clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(after + 1)}, options...)
	for response := range c.backend.client.Client.Watch(clientv3.WithRequireLeader(ctx), c.backend.root+"/", options...) {
		if err := response.Err(); err != nil {
			return compactedError(err)
		}
		last := int64(0)
		for _, event := range response.Events {
			if more, err := use(event); !more || err != nil {
				return err
			}
			last = event.Kv.ModRevision
		}
		if last >= mark.Header.Revision {
			return nil
		}
	}
	return fmt.Errorf("following the changes of etcd after revision %d: %w", after, context.Cause(ctx))
}

// isIn reports whether a key is that of an object of a cluster.
func (c *Copies) isIn(cluster logicalcluster.Name, kv *mvccpb.KeyValue) bool {
	k, err := splitKey(strings.TrimPrefix(string(kv.Key), c.backend.root))
	return err == nil && k.cluster == cluster
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
