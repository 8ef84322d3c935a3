package storage

import (
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// historyBytes is how much may have been written since the version from which on a client watches: to begin a watch in the past,
	// etcd reads into memory all that was written since then, by all clients.
	historyBytes = 256 << 20
	// marks is how many versions are remembered, with as many bytes between each two.
	marks = 64
	// eventBytes is about how much memory an event takes besides its key and value.
	eventBytes = 200
)

// history knows the version behind which so many bytes were written.
type history struct {
	limit int64
	floor atomic.Uint64 // the version; zero as long as less was written

	mu    sync.Mutex
	total int64
	marks []mark // the oldest first
}

// mark is a version, and what was written up to it.
type mark struct {
	version uint64
	total   int64
}

func newHistory(limit int64) *history { return &history{limit: limit} }

// wrote notes that a write of so many bytes got a version.
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

// tooOld returns whether too much was written since a version to begin a watch there.
func (h *history) tooOld(version uint64) bool { return version < h.floor.Load() }

func expired(version uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d: more than %d MiB were written since; list again",
		version, historyBytes>>20))
}
