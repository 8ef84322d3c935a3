package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
)

// Condition makes writes of the storages of Sharded depend on a record of this store, in the same etcd transaction. What is decided by a
// record therefore holds at the moment of the write, also with several servers on one etcd.
type Condition struct {
	// Record is the name of the record.
	Record string
	// Revision is that of the record; zero if it does not exist.
	Revision int64
	// Set is the new value of the record, which is written with the object; empty leaves the record as it is.
	Set string
}

type conditionsKey struct{}

// WithConditions returns a context whose writes to the storages of Sharded fail if a condition does not hold: see IsRecordChanged.
func WithConditions(ctx context.Context, conditions ...Condition) context.Context {
	return context.WithValue(ctx, conditionsKey{}, conditions)
}

var errRecordChanged = errors.New("a record that the write depends on has changed")

// IsRecordChanged reports whether a write failed, without effect, because a record does not have the expected revision.
func IsRecordChanged(err error) bool { return errors.Is(err, errRecordChanged) }

// RevisionedRecord returns a record, and its revision, which is zero if it does not exist.
func (b *Backend) RevisionedRecord(ctx context.Context, name string) (string, int64, error) {
	found, err := b.client.Client.Get(ctx, b.recordKey(name))
	if err != nil || len(found.Kvs) == 0 {
		return "", 0, wrapRecord(name, err)
	}
	return string(found.Kvs[0].Value), found.Kvs[0].ModRevision, nil
}

// SwapRecord replaces a record that has a revision, and returns the new one: see IsRecordChanged.
func (b *Backend) SwapRecord(ctx context.Context, name string, revision int64, value string) (int64, error) {
	key := b.recordKey(name)
	done, err := b.client.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, value)).Commit()
	if err == nil && !done.Succeeded {
		err = errRecordChanged
	}
	if err != nil {
		return 0, wrapRecord(name, err)
	}
	return done.Header.Revision, nil
}

// RecordsBelow calls each with the records whose names start with prefix, without it, page by page.
func (b *Backend) RecordsBelow(ctx context.Context, prefix string, each func(name, value string)) error {
	from := b.recordKey(prefix)
	end := clientv3.GetPrefixRangeEnd(from)
	for next := from; ; {
		found, err := b.client.Client.Get(ctx, next, clientv3.WithRange(end), clientv3.WithLimit(recordPage))
		if err != nil {
			return wrapRecord(prefix, err)
		}
		for _, kv := range found.Kvs {
			each(strings.TrimPrefix(string(kv.Key), from), string(kv.Value))
			next = string(kv.Key) + "\x00"
		}
		if !found.More {
			return nil
		}
	}
}

const recordPage = 500

// conditional is the etcd client that compares the conditions of WithConditions.
type conditional struct {
	etcdkubernetes.Interface
	kv     clientv3.KV
	record func(name string) string
}

// conditionally returns a copy of b whose storages compare conditions.
func (b *Backend) conditionally() *Backend {
	of, reach := *b, b.client.Kubernetes.(transactions)
	reach.Interface = conditional{reach.Interface, reach.kv, b.recordKey}
	of.client = &etcdkubernetes.Client{Client: b.client.Client, Kubernetes: reach}
	return &of
}

// OptimisticPut implements etcdkubernetes.Interface.
func (c conditional) OptimisticPut(ctx context.Context, key string, value []byte, revision int64,
	options etcdkubernetes.PutOptions) (etcdkubernetes.PutResponse, error) {
	conditions, _ := ctx.Value(conditionsKey{}).([]Condition)
	if len(conditions) == 0 {
		return c.Interface.OptimisticPut(ctx, key, value, revision, options)
	}
	return putResponse(c.write(ctx, key, revision, clientv3.OpPut(key, string(value), clientv3.WithLease(options.LeaseID)), conditions))
}

// OptimisticDelete implements etcdkubernetes.Interface.
func (c conditional) OptimisticDelete(ctx context.Context, key string, revision int64,
	options etcdkubernetes.DeleteOptions) (etcdkubernetes.DeleteResponse, error) {
	conditions, _ := ctx.Value(conditionsKey{}).([]Condition)
	if len(conditions) == 0 {
		return c.Interface.OptimisticDelete(ctx, key, revision, options)
	}
	return deleteResponse(c.write(ctx, key, revision, clientv3.OpDelete(key), conditions))
}

// write changes a key with a revision if the conditions hold. If the key has another revision, the first response is its value.
func (c conditional) write(ctx context.Context, key string, revision int64, change clientv3.Op,
	conditions []Condition) (*clientv3.TxnResponse, error) {
	compares := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)}
	changes, reads := []clientv3.Op{change}, []clientv3.Op{clientv3.OpGet(key)}
	for _, condition := range conditions {
		record := c.record(condition.Record)
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(record), "=", condition.Revision))
		reads = append(reads, clientv3.OpGet(record, clientv3.WithKeysOnly()))
		if condition.Set != "" {
			changes = append(changes, clientv3.OpPut(record, condition.Set))
		}
	}
	done, err := c.kv.Txn(ctx).If(compares...).Then(changes...).Else(reads...).Commit()
	if err != nil || done.Succeeded {
		return done, err
	}
	for n, condition := range conditions {
		current := int64(0)
		for _, kv := range done.Responses[n+1].GetResponseRange().Kvs {
			current = kv.ModRevision
		}
		if current != condition.Revision {
			return nil, fmt.Errorf("record %s of the server: %w", condition.Record, errRecordChanged)
		}
	}
	return done, nil
}

// purgePage is the number of keys that PurgeShard deletes in one transaction.
const purgePage = 200

// PurgeShard deletes what a shard has in the storages of Sharded, page by page, as long as a condition holds: see IsRecordChanged. If it is
// interrupted, another call continues.
func (b *Backend) PurgeShard(ctx context.Context, shard string, while Condition) error {
	return b.eachResource(ctx, func(prefix string) error {
		from := prefix + "/" + shard + "/"
		end := clientv3.GetPrefixRangeEnd(from)
		for {
			page, err := b.client.Client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(purgePage), clientv3.WithKeysOnly())
			if err != nil || len(page.Kvs) == 0 {
				return err
			}
			until := string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
			done, err := b.client.Client.Txn(ctx).
				If(clientv3.Compare(clientv3.ModRevision(b.recordKey(while.Record)), "=", while.Revision)).
				Then(clientv3.OpDelete(from, clientv3.WithRange(until))).Commit()
			switch {
			case err != nil:
				return err
			case !done.Succeeded:
				return errRecordChanged
			}
		}
	})
}

// eachResource calls do with the prefix of each resource that has objects. It reads one key of each.
func (b *Backend) eachResource(ctx context.Context, do func(prefix string) error) error {
	all := b.root + "/"
	end := clientv3.GetPrefixRangeEnd(all)
	for next := all; ; {
		found, err := b.client.Client.Get(ctx, next, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil || len(found.Kvs) == 0 {
			return err
		}
		parts := strings.SplitN(strings.TrimPrefix(string(found.Kvs[0].Key), all), "/", 3)
		prefix := all + strings.Join(parts[:min(2, len(parts))], "/")
		if parts[0] != strings.TrimPrefix(ownPrefix, "/") && len(parts) == 3 {
			if err := do(prefix); err != nil {
				return fmt.Errorf("objects below %s: %w", prefix, err)
			}
		}
		next = clientv3.GetPrefixRangeEnd(prefix + "/")
		if len(parts) < 3 {
			next = string(found.Kvs[0].Key) + "\x00"
		}
	}
}
