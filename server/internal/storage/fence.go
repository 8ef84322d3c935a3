package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file stops the writes of a logical cluster while it moves between shards. The fence of a cluster is a key of this store.
//
// Invariants:
//   - Every put and delete of a key of a cluster, the server's own included, compares in its etcd transaction that the fence is absent.
//     Only Copy changes keys behind a fence, and compares that its own fence is there.
//   - Therefore no key of the cluster has a revision after that of the fence: what was acknowledged was written before it.
//   - A fence changes only by SwapFence, which compares its complete value: two migrations never share one.

// FenceState is what a store contains of a fenced cluster.
type FenceState string

const (
	// FenceArriving is on a copy that is not complete, which only its migration may read.
	FenceArriving FenceState = "Arriving"
	// FenceLeaving is on the complete cluster until the record of its placement names another shard.
	FenceLeaving FenceState = "Leaving"
	// FenceSettling is on a cluster that is about to appear in the reads across all clusters, or to disappear from them. Such reads are
	// refused: their clients must list again afterwards, and none may have a later resource version before.
	FenceSettling FenceState = "Settling"
	// FenceMoved is on what remains of a cluster that another shard holds.
	FenceMoved FenceState = "Moved"
)

// Fence is the reason why a cluster cannot be written in this store.
type Fence struct {
	State FenceState `json:"state"`
	// Epoch is that of the placement after the migration.
	Epoch uint64 `json:"epoch"`
	// Shard is the other one: the origin of an arriving cluster, the destination of others.
	Shard string `json:"shard"`
	// Migration is the UID of the LogicalClusterMigration.
	Migration types.UID `json:"migration"`
}

// Kinds of keys of a cluster that moves, see fenceState.
const (
	fenceKind = "fences"
	floorKind = "floors"
)

// fences compares the fences of clusters in all writes. The nil pointer compares none.
type fences struct {
	knownFences
	moves     string // the prefix of the keys of clusters that move, before the kind
	processes string // the prefix of the keys of processes
}

// EnableFences makes all writes compare fences. It must be called before anything is read or written. Without it, the store of a single
// shard compares nothing.
func (b *Backend) EnableFences() {
	b.fences = &fences{moves: b.root + ownPrefix + "/moves/", processes: b.root + ownPrefix + "/processes/"}
	reach := b.client.Kubernetes.(transactions)
	reach.fences, reach.Interface = b.fences, fencing{reach.Interface, reach.kv, b.fences}
	b.client.Kubernetes = reach
}

// of returns the key of the fence of the cluster of ctx, in which key is; empty without fences.
func (f *fences) of(ctx context.Context, key string) (string, error) {
	if f == nil {
		return "", nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err == nil && !strings.Contains(key, "/"+string(cluster)+"/") {
		err = errors.New("the key is in another logical cluster")
	}
	if err != nil {
		return "", apierrors.NewInternalError(fmt.Errorf("finding the fence of key %s: %w", key, err))
	}
	return f.key(cluster), nil
}

func (f *fences) key(cluster logicalcluster.Name) string {
	return f.moves + fenceKind + "/" + string(cluster)
}

// floor returns the key whose revision is that in which a cluster arrived.
func (f *fences) floor(cluster logicalcluster.Name) string {
	return f.moves + floorKind + "/" + string(cluster)
}

// fencesOf returns the keys of the fences of several clusters, each once.
func fencesOf(held []put) []string {
	var keys []string
	known := map[string]bool{"": true}
	for _, h := range held {
		if !known[h.fence] {
			known[h.fence] = true
			keys = append(keys, h.fence)
		}
	}
	return keys
}

// fencing is the etcd client that compares fences.
type fencing struct {
	etcdkubernetes.Interface
	kv clientv3.KV
	*fences
}

// OptimisticPut implements etcdkubernetes.Interface.
func (f fencing) OptimisticPut(ctx context.Context, key string, value []byte, revision int64,
	options etcdkubernetes.PutOptions) (etcdkubernetes.PutResponse, error) {
	return putResponse(f.write(ctx, key, revision, clientv3.OpPut(key, string(value), clientv3.WithLease(options.LeaseID))))
}

// OptimisticDelete implements etcdkubernetes.Interface.
func (f fencing) OptimisticDelete(ctx context.Context, key string, revision int64,
	_ etcdkubernetes.DeleteOptions) (etcdkubernetes.DeleteResponse, error) {
	return deleteResponse(f.write(ctx, key, revision, clientv3.OpDelete(key)))
}

// putResponse returns the response to a put by a transaction whose first read has the current value.
func putResponse(done *clientv3.TxnResponse, err error) (etcdkubernetes.PutResponse, error) {
	if err != nil {
		return etcdkubernetes.PutResponse{}, err
	}
	return etcdkubernetes.PutResponse{Succeeded: done.Succeeded, Revision: done.Header.Revision, KV: currentOf(done)}, nil
}

// deleteResponse returns the response to a deletion by a transaction whose first read has the current value.
func deleteResponse(done *clientv3.TxnResponse, err error) (etcdkubernetes.DeleteResponse, error) {
	if err != nil {
		return etcdkubernetes.DeleteResponse{}, err
	}
	return etcdkubernetes.DeleteResponse{Succeeded: done.Succeeded, Revision: done.Header.Revision, KV: currentOf(done)}, nil
}

// currentOf returns the value that a transaction has read in place of its changes; nil if it made them, or if there is none.
func currentOf(done *clientv3.TxnResponse) *mvccpb.KeyValue {
	if done.Succeeded {
		return nil
	}
	if found := done.Responses[0].GetResponseRange().Kvs; len(found) == 1 {
		return found[0]
	}
	return nil
}

// write changes a key with a revision, unless the cluster of ctx is fenced. If it does not, the first response is the current value.
func (f fencing) write(ctx context.Context, key string, revision int64, change clientv3.Op) (*clientv3.TxnResponse, error) {
	fence, err := f.of(ctx, key)
	if err != nil {
		return nil, err
	}
	done, err := f.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision), clientv3.Compare(clientv3.CreateRevision(fence), "=", 0)).
		Then(change).Else(clientv3.OpGet(key), clientv3.OpGet(fence)).Commit()
	if err == nil && !done.Succeeded {
		err = fencedBy(done.Responses[1:])
	}
	return done, err
}

// fenced is the error for writes of a fenced cluster.
type fenced struct{ *apierrors.StatusError }

// IsFenced reports whether a read or a write failed because its cluster is fenced.
func IsFenced(err error) bool {
	var f *fenced
	return errors.As(err, &f)
}

// fencedBy returns the error for a write if any of the responses has a fence.
func fencedBy(reads []*etcdserverpb.ResponseOp) error {
	for _, r := range reads {
		for _, kv := range r.GetResponseRange().Kvs {
			key := string(kv.Key)
			return refusedBy(logicalcluster.Name(key[strings.LastIndexByte(key, '/')+1:]))
		}
	}
	return nil
}

// refusedBy returns the error for clients. It does not name shards, which tenants do not know.
func refusedBy(cluster logicalcluster.Name) error {
	return &fenced{&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: fmt.Sprintf("logical cluster %q is being moved to another shard, and was not changed: retry the request", cluster),
		Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}}}
}

// errFenceChanged means that a fence is not what the caller expects.
var errFenceChanged = errors.New("the fence of the logical cluster has changed")

// IsFenceChanged reports whether a change of a fence failed because it was not the expected one.
func IsFenceChanged(err error) bool { return errors.Is(err, errFenceChanged) }

// Fence returns the fence of a cluster and its revision; nil if there is none. It reads etcd.
func (b *Backend) Fence(ctx context.Context, cluster logicalcluster.Name) (*Fence, int64, error) {
	found, err := b.client.Client.Get(ctx, b.fences.key(cluster))
	if err != nil || len(found.Kvs) == 0 {
		return nil, 0, err
	}
	fence := &Fence{}
	if err := json.Unmarshal(found.Kvs[0].Value, fence); err != nil {
		return nil, 0, fmt.Errorf("fence of logical cluster %q: %w", cluster, err)
	}
	return fence, found.Kvs[0].ModRevision, nil
}

// SwapFence replaces the fence from of a cluster by the fence to; nil means none. It fails if there is another fence, and succeeds again if
// it is called again. It returns the revision of the fence to, or, without one, a revision in which it is absent.
func (b *Backend) SwapFence(ctx context.Context, cluster logicalcluster.Name, from, to *Fence) (int64, error) {
	key := b.fences.key(cluster)
	expected, change, err := swap(key, from, to)
	if err != nil {
		return 0, err
	}
	done, _, err := retry(ctx, firstAnswer, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return b.client.Client.Txn(ctx).If(expected).Then(change).Else(clientv3.OpGet(key)).Commit()
	})
	if err != nil {
		return 0, fmt.Errorf("fence of logical cluster %q: %w", cluster, err)
	}
	if done.Succeeded {
		return done.Header.Revision, nil
	}
	stored := done.Responses[0].GetResponseRange().Kvs
	if to == nil && len(stored) == 0 {
		return done.Header.Revision, nil
	}
	if to != nil && len(stored) == 1 && string(stored[0].Value) == to.value() {
		return stored[0].ModRevision, nil
	}
	return 0, fmt.Errorf("fence of logical cluster %q: %w", cluster, errFenceChanged)
}

// swap returns the comparison with the fence from, and the change to the fence to.
func swap(key string, from, to *Fence) (clientv3.Cmp, clientv3.Op, error) {
	expected, change := clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.OpDelete(key)
	if from != nil {
		expected = clientv3.Compare(clientv3.Value(key), "=", from.value())
	}
	if to != nil {
		if to.State == "" || to.Epoch == 0 || to.Shard == "" || to.Migration == "" {
			return expected, change, fmt.Errorf("incomplete fence %+v", *to)
		}
		change = clientv3.OpPut(key, to.value())
	}
	return expected, change, nil
}

// value returns the stored form of a fence.
func (f *Fence) value() string {
	value, _ := json.Marshal(f) // strings and a number
	return string(value)
}
