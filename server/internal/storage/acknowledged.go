package storage

import (
	"context"
	"hash/maphash"
	"strings"
	"sync/atomic"

	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// acknowledgedSlots is the number of slots that clusters share for each watched resource. Clusters that share a slot wait for each other's
// events, which is harmless.
const acknowledgedSlots = 1 << 10

// Acknowledged records the last revision in which this server wrote a resource in each cluster. It takes the same memory for any number
// of clusters.
type Acknowledged struct {
	seed  maphash.Seed
	slots [acknowledgedSlots]atomic.Uint64
}

// Acknowledged returns the record of a resource, which begins with the first call.
func (b *Backend) Acknowledged(resource schema.GroupResource) *Acknowledged {
	a, _ := b.acknowledged.LoadOrStore(resource, &Acknowledged{seed: maphash.MakeSeed()})
	return a.(*Acknowledged)
}

func (a *Acknowledged) slot(cluster logicalcluster.Name) *atomic.Uint64 {
	return &a.slots[maphash.String(a.seed, string(cluster))%acknowledgedSlots]
}

// Last returns the revision of the last write in a cluster, or of a later one in another cluster that shares the slot; zero if
// there was none.
func (a *Acknowledged) Last(cluster logicalcluster.Name) uint64 { return a.slot(cluster).Load() }

// Forget makes Last return zero instead of a revision, unless a later write followed.
func (a *Acknowledged) Forget(cluster logicalcluster.Name, revision uint64) {
	a.slot(cluster).CompareAndSwap(revision, 0)
}

func (a *Acknowledged) note(cluster logicalcluster.Name, revision uint64) {
	slot := a.slot(cluster)
	for {
		if last := slot.Load(); last >= revision || slot.CompareAndSwap(last, revision) {
			return
		}
	}
}

// acknowledging is the etcd client of the storage of one resource, which records its writes.
type acknowledging struct {
	etcdkubernetes.Interface
	backend  *Backend
	resource schema.GroupResource
	prefix   string // of all keys, before the cluster
}

// OptimisticPut implements etcdkubernetes.Interface.
func (a acknowledging) OptimisticPut(ctx context.Context, key string, value []byte, revision int64,
	options etcdkubernetes.PutOptions) (etcdkubernetes.PutResponse, error) {
	response, err := a.Interface.OptimisticPut(ctx, key, value, revision, options)
	if err != nil || !response.Succeeded {
		return response, err
	}
	p, ok := ctx.Value(partKey{}).(part)
	if !ok || revision != 0 {
		a.note(key, response.Revision)
		return response, nil
	}
	p.acknowledge = append(p.acknowledge, func(revision int64) { a.note(key, revision) })
	if p.last {
		for _, acknowledge := range p.acknowledge {
			acknowledge(response.Revision)
		}
	}
	return response, nil
}

// OptimisticDelete implements etcdkubernetes.Interface.
func (a acknowledging) OptimisticDelete(ctx context.Context, key string, revision int64,
	options etcdkubernetes.DeleteOptions) (etcdkubernetes.DeleteResponse, error) {
	response, err := a.Interface.OptimisticDelete(ctx, key, revision, options)
	if err == nil && response.Succeeded {
		a.note(key, response.Revision)
	}
	return response, err
}

func (a acknowledging) note(key string, revision int64) {
	cluster, _, _ := strings.Cut(strings.TrimPrefix(key, a.prefix), "/")
	a.backend.noteWrite(a.resource, logicalcluster.Name(cluster), revision)
}

// noteWrite records a write of a resource in a cluster, if that is recorded.
func (b *Backend) noteWrite(resource schema.GroupResource, cluster logicalcluster.Name, revision int64) {
	if known, ok := b.acknowledged.Load(resource); ok {
		known.(*Acknowledged).note(cluster, uint64(revision))
	}
}
