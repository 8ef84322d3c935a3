package outbound

import (
	"errors"
	"sync"
)

// Budget of large answers.
const (
	maxLarge         = 64 << 20
	maxLargeOfHolder = 16 << 20
)

var errLarge = errors.New("too many large answers are being read at the same time; try again later, or answer with less")

// budget counts the bytes of large answers that the server holds for each logical cluster, or for each host that it calls for no
// cluster. It has entries for those that hold some.
type budget struct {
	mu    sync.Mutex
	taken int64
	of    map[string]int64
}

// take reserves n bytes for a holder, false if there are not as many left.
func (b *budget) take(holder string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken+n > maxLarge || b.of[holder]+n > maxLargeOfHolder {
		return false
	}
	if b.of == nil {
		b.of = map[string]int64{}
	}
	b.taken += n
	b.of[holder] += n
	return true
}

// give returns n bytes that take has reserved.
func (b *budget) give(holder string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	if b.of[holder] -= n; b.of[holder] <= 0 {
		delete(b.of, holder)
	}
}
