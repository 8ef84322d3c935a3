package outbound

import (
	"errors"
	"sync"
)

// Budget of large responses.
const (
	maxLarge         = 64 << 20
	maxLargeOfHolder = 16 << 20
)

var errLarge = errors.New("the server is reading too many large responses at the same time; try again later, or respond with less")

// budget counts the bytes of large responses that the server holds, by logical cluster, or by host for calls that belong to no logical
// cluster. It has entries only for holders with bytes.
type budget struct {
	mu    sync.Mutex
	taken int64
	of    map[string]int64
}

// take reserves n bytes for a holder, and reports whether they were free.
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

// give releases n bytes that take has reserved.
func (b *budget) give(holder string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	if b.of[holder] -= n; b.of[holder] <= 0 {
		delete(b.of, holder)
	}
}
