package tree

import (
	"math/rand/v2"
	"sync"
)

// logBytes limits the changes in memory: what a front proxy can miss without reading everything again.
const logBytes = 16 << 20

// entryBytes is the approximate memory of an entry besides its bytes.
const entryBytes = 48

// changelog has the recent changes in the order in which the informers received them, encoded once for all readers.
//
// Invariants:
//   - first is the position of entries[0], and only rises. A reader whose position is lower has missed changes.
//   - The entries have at most limit bytes, unless there is only one.
//   - changed is closed with the next change, and then replaced.
type changelog struct {
	id    uint64
	limit int

	mu      sync.Mutex
	first   uint64
	entries [][]byte
	bytes   int
	changed chan struct{}
	// shards are the Shards that the entries have described.
	shards map[string]Shard
}

func newChangelog(limit int) *changelog {
	return &changelog{id: rand.Uint64(), limit: limit, changed: make(chan struct{}), shards: map[string]Shard{}}
}

// add appends a record.
func (l *changelog) add(record []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.append(record)
}

func (l *changelog) append(record []byte) {
	l.entries = append(l.entries, record)
	l.bytes += len(record) + entryBytes
	for l.bytes > l.limit && len(l.entries) > 1 {
		l.bytes -= len(l.entries[0]) + entryBytes
		l.entries[0] = nil
		l.entries = l.entries[1:]
		l.first++
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// setShards appends what differs from the Shards of the previous call.
func (l *changelog) setShards(current []Shard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := make(map[string]bool, len(l.shards))
	for name := range l.shards {
		gone[name] = true
	}
	for _, s := range current {
		delete(gone, s.Name)
		if l.shards[s.Name] != s {
			l.shards[s.Name] = s
			l.append(appendShard(nil, s))
		}
	}
	for name := range gone {
		delete(l.shards, name)
		l.append(appendShard(nil, Shard{Name: name, Deleted: true}))
	}
}

// appendShards appends the records of all Shards to b, and returns the position to which they belong.
func (l *changelog) appendShards(b []byte) ([]byte, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.shards {
		b = appendShard(b, s)
	}
	return b, l.first + uint64(len(l.entries))
}

// next returns the position of the next change.
func (l *changelog) next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first + uint64(len(l.entries))
}

// has reports whether a reader can continue at a position.
func (l *changelog) has(position uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return position >= l.first && position <= l.first+uint64(len(l.entries))
}

// read appends changes from a position on to b, until the position to or until b has size bytes. It returns the position of the next
// change, and a channel that is closed after a later change. It reports false if the position is not in the log.
func (l *changelog) read(b []byte, position, to uint64, size int) (out []byte, next uint64, changed <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if position < l.first || position > l.first+uint64(len(l.entries)) {
		return b, position, nil, false
	}
	for position < to && position < l.first+uint64(len(l.entries)) && len(b) < size {
		b = append(b, l.entries[position-l.first]...)
		position++
	}
	return b, position, l.changed, true
}
