package storage

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Unreadable is a stored object that cannot be decoded.
type Unreadable struct {
	Cluster         logicalcluster.Name
	Resource        schema.GroupResource
	Namespace, Name string
	Err             error
}

// reports reports each stored value that is set aside once, as long as there are not very many.
type reports struct {
	seed  maphash.Seed
	log   flowcontrol.PassiveRateLimiter
	count *metrics.Counter
	tells atomic.Pointer[func(Unreadable)]

	mu       sync.Mutex
	reported map[uint64]uint64 // by the hash of the key, the hash of key and value; at most mostReported
}

// mostReported is the number of remembered values. With more values, some are reported again.
const mostReported = 4096

func newReports() *reports {
	return &reports{
		seed: maphash.MakeSeed(), reported: map[uint64]uint64{}, log: flowcontrol.NewTokenBucketPassiveRateLimiter(1, 50),
		count: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "kcp_storage_unreadable_objects_total",
			Help:           "Number of stored objects that could not be decoded and were set aside.",
			StabilityLevel: metrics.ALPHA,
		}),
	}
}

// RegisterMetrics registers kcp_storage_unreadable_objects_total.
func (b *Backend) RegisterMetrics(register func(metrics.Registerable) error) error {
	return register(b.reports.count)
}

// OnUnreadable makes the storages call f for each object that they set aside. f must not block.
func (b *Backend) OnUnreadable(f func(Unreadable)) { b.reports.tells.Store(&f) }

// report reports a stored value.
func (r *reports) report(u Unreadable, value []byte) {
	var h maphash.Hash
	h.SetSeed(r.seed)
	for _, part := range []string{string(u.Cluster), u.Resource.String(), u.Namespace, u.Name} {
		_, _ = h.WriteString(part)
		_ = h.WriteByte(0)
	}
	key := h.Sum64()
	_, _ = h.Write(value)
	if !r.isNew(key, h.Sum64()) {
		return
	}
	r.count.Inc()
	if r.log.TryAccept() {
		klog.ErrorS(u.Err, "Stored object is set aside", decisionlog.Cluster, u.Cluster, decisionlog.Resource, u.Resource.String(),
			decisionlog.Namespace, u.Namespace, decisionlog.Name, u.Name)
	}
	if f := r.tells.Load(); f != nil {
		(*f)(u)
	}
}

func (r *reports) isNew(key, sum uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported[key] == sum {
		return false
	}
	if len(r.reported) >= mostReported {
		clear(r.reported)
	}
	r.reported[key] = sum
	return true
}
