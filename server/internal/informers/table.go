package informers

import (
	"encoding/binary"
	"hash/maphash"
)

const (
	// parts is the number of parts of a table: a change copies at most the bytes of one.
	parts = 256
	// fewestSlots is the number of slots of the smallest part.
	fewestSlots = 8
	// growth is the share of its bytes by which the buffer of a part grows: of one with fewer bytes than small the first, which copies less
	// often, and of others the second, which wastes less. shrink is the share that may be unused before a part is copied.
	smallGrowth, growth, shrink = 2, 8, 4
	small                       = 32 << 10
	// leastGrowth and leastUnused are bounds of both, in bytes.
	leastGrowth, leastUnused = 256, 2048
)

// table maps keys to very many short strings. It has two pointers for each part, where a map has two for each entry: the garbage collector
// reads none of the content. The caller guards it.
//
// Invariants:
//   - An entry is in the part, and from the slot, that its hash determines: no empty slot is between the two.
//   - Strings that a table returns are copies, because entries move.
//   - At most three quarters of the slots of a part are used, and at most 4 GiB of its bytes: 1 TiB of a table.
type table struct {
	seed  maphash.Seed
	parts [parts]tablePart
	count int
}

// tablePart is a hash table with open addressing.
type tablePart struct {
	// slots are empty if they are 0. Otherwise they have one more than the offset of the entry in data.
	slots []uint32
	used  int
	// data has, for each entry, the lengths of key and value, and then both.
	data   []byte
	unused int // bytes of data
}

func newTable() *table { return &table{seed: maphash.MakeSeed()} }

// find returns the part of a key, its hash, and its slot, or -1.
func (t *table) find(key string) (p *tablePart, hash uint64, slot int) {
	hash = maphash.String(t.seed, key)
	p = &t.parts[hash>>56]
	return p, hash, p.find(key, hash)
}

func (p *tablePart) find(key string, hash uint64) int {
	if len(p.slots) == 0 {
		return -1
	}
	mask := len(p.slots) - 1
	for i := int(hash) & mask; p.slots[i] != 0; i = (i + 1) & mask {
		if k, _, _ := p.entry(p.slots[i]); string(k) == key {
			return i
		}
	}
	return -1
}

// home returns the slot in which the search for the entry of a slot begins.
func (t *table) home(p *tablePart, slot uint32) int {
	key, _, _ := p.entry(slot)
	return int(maphash.Bytes(t.seed, key)) & (len(p.slots) - 1)
}

// entry returns the key and the value of a slot, and the length of its entry.
func (p *tablePart) entry(slot uint32) (key, value []byte, length int) {
	entry := p.data[slot-1:]
	keyLength, n := binary.Uvarint(entry)
	valueLength, m := binary.Uvarint(entry[n:])
	from := n + m
	to := from + int(keyLength)
	return entry[from:to], entry[to : to+int(valueLength)], to + int(valueLength)
}

// get returns the value of a key: like itself, without a copy, if it is equal.
func (t *table) get(key, like string) (string, bool) {
	p, _, slot := t.find(key)
	if slot < 0 {
		return "", false
	}
	_, value, _ := p.entry(p.slots[slot])
	if string(value) == like {
		return like, true
	}
	return string(value), true
}

func (t *table) has(key string) bool {
	_, _, slot := t.find(key)
	return slot >= 0
}

func (t *table) keys() []string {
	keys := make([]string, 0, t.count)
	for n := range t.parts {
		p := &t.parts[n]
		for _, slot := range p.slots {
			if slot != 0 {
				key, _, _ := p.entry(slot)
				keys = append(keys, string(key))
			}
		}
	}
	return keys
}

func (t *table) set(key, value string) {
	p, hash, slot := t.find(key)
	if slot >= 0 {
		_, _, length := p.entry(p.slots[slot])
		p.unused += length
		p.slots[slot] = p.append(key, value)
		p.tidy()
		return
	}
	if 4*(p.used+1) > 3*len(p.slots) {
		t.resize(p, max(fewestSlots, 2*len(p.slots)))
	}
	p.place(p.append(key, value), int(hash)&(len(p.slots)-1))
	p.used++
	t.count++
}

// append adds an entry, and returns one more than its offset.
func (p *tablePart) append(key, value string) uint32 {
	var lengths [2 * binary.MaxVarintLen64]byte
	n := binary.PutUvarint(lengths[:], uint64(len(key)))
	n += binary.PutUvarint(lengths[n:], uint64(len(value)))
	offset := len(p.data)
	if more := n + len(key) + len(value); cap(p.data)-offset < more {
		share := growth
		if offset < small {
			share = smallGrowth
		}
		p.data = append(make([]byte, 0, offset+max(more, offset/share, leastGrowth)), p.data...)
	}
	p.data = append(append(append(p.data, lengths[:n]...), key...), value...)
	return uint32(offset) + 1
}

// place writes a slot for a key that has none. home is where the search for it begins.
func (p *tablePart) place(slot uint32, home int) {
	i := home
	for p.slots[i] != 0 {
		i = (i + 1) & (len(p.slots) - 1)
	}
	p.slots[i] = slot
}

func (t *table) resize(p *tablePart, n int) {
	before := p.slots
	p.slots = make([]uint32, n)
	for _, slot := range before {
		if slot != 0 {
			p.place(slot, t.home(p, slot))
		}
	}
}

// remove removes a key, and returns whether it existed.
func (t *table) remove(key string) bool {
	p, _, slot := t.find(key)
	if slot < 0 {
		return false
	}
	_, _, length := p.entry(p.slots[slot])
	p.unused += length
	p.used--
	t.count--
	t.empty(p, slot)
	if len(p.slots) > fewestSlots && 8*p.used < len(p.slots) {
		t.resize(p, len(p.slots)/2)
	}
	p.tidy()
	return true
}

// empty empties a slot, and moves later ones forward that would not be found behind it.
func (t *table) empty(p *tablePart, hole int) {
	mask := len(p.slots) - 1
	for i := (hole + 1) & mask; p.slots[i] != 0; i = (i + 1) & mask {
		if home := t.home(p, p.slots[i]); (i-home)&mask >= (i-hole)&mask {
			p.slots[hole] = p.slots[i]
			hole = i
		}
	}
	p.slots[hole] = 0
}

// tidy copies the entries if much of data is unused.
func (p *tablePart) tidy() {
	if p.unused < leastUnused || p.unused < len(p.data)/shrink {
		return
	}
	data := make([]byte, 0, len(p.data)-p.unused)
	for i, slot := range p.slots {
		if slot == 0 {
			continue
		}
		_, _, length := p.entry(slot)
		from := int(slot - 1)
		p.slots[i] = uint32(len(data) + 1)
		data = append(data, p.data[from:from+length]...)
	}
	p.data, p.unused = data, 0
}
