package storage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ownPrefix follows the root in the keys of what the server stores for itself. The group of a tenant's resource contains a dot, so that no
// resource has this prefix.
const ownPrefix = "/kcp-store"

// incarnationTries limits how often Incarnation begins again after another server changed the record, or a member of etcd that is behind
// responded.
const incarnationTries = 10

// incarnation is the record of a store: ID identifies it, in the etcd with a cluster ID.
//
// The raft index of an etcd rises with every revision, so that the difference of both never falls. A snapshot that is restored keeps its
// revisions, but its raft index begins at zero. Index is an index that etcd had reached before it wrote the record; the revision is that of
// the record's key.
type incarnation struct {
	ID      string `json:"id"`
	Cluster uint64 `json:"etcdCluster"`
	Index   uint64 `json:"raftIndex"`

	revision int64
}

// continues reports whether an etcd in a state is still the one that wrote the record. The state must include the record.
func (i incarnation) continues(cluster, index uint64, revision int64) bool {
	return i.Cluster == cluster && int64(index)-revision >= int64(i.Index)-i.revision
}

func (i incarnation) String() string { return fmt.Sprintf("%s-%016x", i.ID, i.Cluster) }

// Incarnation returns the ID of this store. Its revisions only rise: a restored snapshot and another etcd have another ID. What etcd cannot
// see, a disk that was reset with etcd's log, is left to those who know a later revision of the same incarnation.
//
// It reads and may write etcd: call it once, at the start.
func (b *Backend) Incarnation(ctx context.Context) (string, error) {
	for range incarnationTries {
		current, ok, err := b.incarnation(ctx)
		if err != nil {
			return "", fmt.Errorf("identifying the store: %w", err)
		}
		if ok {
			return current.String(), nil
		}
	}
	return "", fmt.Errorf("identifying the store: no member of etcd has its current state; start the server again")
}

// ForgetIncarnation makes Incarnation return another ID. Call it at the start if an administrator knows that the store was restored: etcd
// does not see that its directory was replaced by an older one.
func (b *Backend) ForgetIncarnation(ctx context.Context) error {
	_, err := b.client.Client.Delete(ctx, b.incarnationKey())
	return err
}

func (b *Backend) incarnationKey() string { return b.root + ownPrefix + "/incarnation" }

// incarnation reads the record, and writes it if there is none for this store. It reports false if it must be called again.
func (b *Backend) incarnation(ctx context.Context) (incarnation, bool, error) {
	key := b.incarnationKey()
	found, err := b.client.Client.Get(ctx, key)
	if err != nil {
		return incarnation{}, false, err
	}
	status, err := b.status(ctx, found.Header.Revision)
	if status == nil || err != nil {
		return incarnation{}, false, err
	}
	stored := incarnation{}
	if len(found.Kvs) == 1 {
		if err := json.Unmarshal(found.Kvs[0].Value, &stored); err != nil {
			return incarnation{}, false, fmt.Errorf("value of etcd key %s: %w", key, err)
		}
		stored.revision = found.Kvs[0].ModRevision
		if stored.continues(status.Header.ClusterId, status.RaftAppliedIndex, status.Header.Revision) {
			return stored, true, nil
		}
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	next := incarnation{ID: hex.EncodeToString(id), Cluster: status.Header.ClusterId, Index: status.RaftAppliedIndex}
	value, err := json.Marshal(next)
	if err != nil {
		return incarnation{}, false, err
	}
	written, err := b.client.Client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", stored.revision)).
		Then(clientv3.OpPut(key, string(value))).Commit()
	if err != nil {
		return incarnation{}, false, err
	}
	return next, written.Succeeded, nil
}

// status returns the status of a member that has applied a revision, or nil if none of those that respond has.
func (b *Backend) status(ctx context.Context, revision int64) (*clientv3.StatusResponse, error) {
	endpoints := b.client.Client.Endpoints()
	if len(endpoints) == 0 {
		endpoints = []string{""} // the embedded etcd
	}
	var last error
	for _, endpoint := range endpoints {
		// A member fills the header first: the index includes everything up to the revision in it.
		status, err := b.client.Client.Status(ctx, endpoint)
		switch {
		case err != nil:
			last = err
		case status.Header.Revision >= revision:
			return status, nil
		}
	}
	return nil, last
}
