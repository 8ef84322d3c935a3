package storage

import (
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// historyBytes limits the bytes written since the start version of a client's watch: to begin a watch in the past, etcd reads
	// everything into memory that all clients have written since then.
	historyBytes = 256 << 20
	// marks is the number of stored versions, at equal distances in bytes.
	marks = 64
	// eventBytes is the approximate memory of an event besides its key and value.
	eventBytes = 200
)

// history finds the version since which limit bytes were written.
//
// Invariants:
//   - floor never falls. At least limit bytes were recorded after the version that it has.
//   - Only objects that this server creates and changes are recorded, since it started: not deletions, and not the writes of other servers
//     of the same etcd. After a start, floor is zero.
//   - marks has at most one more mark than the constant of that name. Concurrent writes may be recorded out of order, so the versions of
//     marks are not sorted, but their totals are.
type history struct {
	limit int64
	floor atomic.Uint64 // the version; zero until so many bytes were written

	mu    sync.Mutex
	total int64
	marks []mark // the oldest first
}

// mark is a version, and the number of bytes written up to it.
type mark struct {
	version uint64
	total   int64
}

func newHistory(limit int64) *history { return &history{limit: limit} }

// wrote records the bytes and the version of a write.
func (h *history) wrote(version uint64, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total += bytes + eventBytes
	if n := len(h.marks); n == 0 || h.total-h.marks[n-1].total >= h.limit/marks {
		h.marks = append(h.marks, mark{version, h.total})
	}
	for len(h.marks) > 0 && h.total-h.marks[0].total >= h.limit {
		h.floor.Store(max(h.floor.Load(), h.marks[0].version))
		h.marks = h.marks[1:]
	}
}

// tooOld reports whether too many bytes were written since a version to begin a watch at it.
func (h *history) tooOld(version uint64) bool { return version < h.floor.Load() }

func expired(version uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d: more than %d MiB were written since; list again",
		version, historyBytes>>20))
}
