package storage

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// tombstoneLife is how long a tombstone is kept. A creation that was sent before the deletion arrives within minutes, because calls have
	// a timeout and their senders read the Workspace again before they retry.
	tombstoneLife = time.Hour
	// leaseLife is how long tombstones share a lease of etcd, which is a timer in its memory.
	leaseLife = time.Minute
)

// Tombstones records which logical clusters were deleted for which Workspace on another shard. A creation for the same Workspace that is
// late does not make them again.
//
// Invariants:
//   - The tombstone is stored before the LogicalCluster is deleted.
//   - Create compares in the same etcd transaction that there is no tombstone.
//   - A tombstone is that of a cluster and its owner: the home of a user has the same name after its deletion, and another owner.
//   - etcd removes a tombstone after tombstoneLife, so that their number is bounded by the rate of deletions.
type Tombstones struct {
	client *clientv3.Client
	prefix string // of the keys, before the cluster

	mu    sync.Mutex
	lease clientv3.LeaseID
	until time.Time // no tombstone joins lease after it
}

// Tombstones returns the tombstones of this store.
func (b *Backend) Tombstones() *Tombstones {
	return &Tombstones{client: b.client.Client, prefix: b.root + ownPrefix + "/deleted/"}
}

func (t *Tombstones) key(cluster logicalcluster.Name, owner types.UID) string {
	return t.prefix + string(cluster) + "/" + string(owner)
}

// Put records that the cluster of an owner is deleted.
func (t *Tombstones) Put(ctx context.Context, cluster logicalcluster.Name, owner types.UID) error {
	lease, err := t.currentLease(ctx, time.Now())
	if err != nil {
		return err
	}
	_, _, err = retry(ctx, firstAnswer, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return t.client.Put(ctx, t.key(cluster, owner), "", clientv3.WithLease(lease))
	})
	if err != nil {
		t.forget(lease) // etcd may have lost it
	}
	return err
}

func (t *Tombstones) forget(lease clientv3.LeaseID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lease == lease {
		t.until = time.Time{}
	}
}

// currentLease returns a lease that begins now, or began less than leaseLife ago.
func (t *Tombstones) currentLease(ctx context.Context, now time.Time) (clientv3.LeaseID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.until) {
		return t.lease, nil
	}
	granted, _, err := retry(ctx, firstAnswer, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return t.client.Grant(ctx, int64((tombstoneLife + leaseLife).Seconds()))
	})
	if err != nil {
		return 0, err
	}
	t.lease, t.until = granted.ID, now.Add(leaseLife)
	return t.lease, nil
}

// Has reports whether the cluster of an owner has a tombstone.
func (t *Tombstones) Has(ctx context.Context, cluster logicalcluster.Name, owner types.UID) (bool, error) {
	found, _, err := retry(ctx, 0, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return t.client.Get(ctx, t.key(cluster, owner), clientv3.WithCountOnly())
	})
	return err == nil && found.Count > 0, err
}

// Create calls create with a context in which a Create of one object fails, as if the object existed, if the cluster of an owner has a
// tombstone.
func (t *Tombstones) Create(ctx context.Context, cluster logicalcluster.Name, owner types.UID, create func(context.Context) error) error {
	if name, err := logicalcluster.NameFrom(ctx); err != nil || name != cluster {
		return errors.Join(errors.New("the context is in another logical cluster"), err)
	}
	once := &Transaction{absent: []string{t.key(cluster, owner)}}
	defer once.End()
	return create(once.Commit(ctx))
}
