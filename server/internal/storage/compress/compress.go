// Package compress compresses short values that have much in common with each other. The result is a block of S2 with a dictionary, which
// every decoder of S2 reads. The encoder of S2 itself clears a table of 64 KiB on the stack for each value: for a value of 1 KiB, this and
// growing the stack take most of its time.
package compress

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/klauspost/compress/s2"
)

const (
	// longest is the length in bytes of values for which positions and distances have 16 bits, with any dictionary.
	longest = 32 << 10
	// leastMatch is the least number of bytes for a reference instead of the bytes. In the dictionary, farMatch bytes are looked for.
	leastMatch, farMatch = 4, 5
	// valueBits and dictionaryBits are the sizes of tables of positions, by the hash of the bytes there.
	valueBits, dictionaryBits = 10, 13
	// patience is the number of positions without a match after which one more is skipped each time.
	patience = 8
	word     = 8 // bytes that are read at once
)

// Dictionary is what values have in common. It can be used concurrently.
type Dictionary struct {
	s2 *s2.Dict
	// content is followed by a word, so that a word can be read at each of its bytes.
	content []byte
	size    int // of the content
	// short and long have the last positions with a hash of the first bytes of a word, and of a whole one.
	short, long [1 << dictionaryBits]uint16
}

// NewDictionary returns a dictionary with a content of 16 bytes to 32 KiB.
func NewDictionary(content []byte) *Dictionary {
	d := &Dictionary{s2: s2.MakeDict(content, nil), content: append(bytes.Clone(content), make([]byte, word)...), size: len(content)}
	for i := range d.size - farMatch {
		w := load(d.content, i)
		d.short[shortHash(w)], d.long[longHash(w)] = uint16(i), uint16(i)
	}
	return d
}

// Decode returns a value of at most so many bytes that was compressed with the dictionary.
func (d *Dictionary) Decode(block []byte, most int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, err
	}
	if n > most {
		return nil, fmt.Errorf("%d bytes are more than %d", n, most)
	}
	return d.s2.Decode(nil, block)
}

// Append appends the compressed value to block.
func (d *Dictionary) Append(block, value []byte) []byte {
	if len(value) > longest || d.size > longest {
		return append(block, d.s2.Encode(nil, value)...)
	}
	e := encoder{Dictionary: d, block: binary.AppendUvarint(block, uint64(len(value))), value: value, distance: d.size}
	e.encode()
	return e.block
}

// encoder compresses one value.
type encoder struct {
	*Dictionary
	block, value []byte
	// done is how many bytes of the value are in the block, and distance that of the last reference.
	done, distance int
}

// match is a part of the value that is also at a distance before it. The dictionary is before the first byte of the value.
type match struct{ at, distance, length int }

func (e *encoder) encode() {
	var seen [1 << valueBits]uint16
	for at := 0; at+word <= len(e.value); {
		w := load(e.value, at)
		place := &seen[valueHash(w)]
		m := e.find(at, int(*place), w)
		*place = uint16(at)
		if m.length == 0 {
			at += 1 + (at-e.done)/patience
			continue
		}
		m = e.extended(m)
		e.literals(m.at)
		e.reference(m.distance, m.length)
		at = e.done
		if last := at - 2; last+word <= len(e.value) {
			seen[valueHash(load(e.value, last))] = uint16(last)
		}
	}
	e.literals(len(e.value))
}

// find returns the match at a position with the word w that saves most, if there is one. The same hash was seen before at seen.
func (e *encoder) find(at, seen int, w uint64) match {
	var best match
	if e.hasAgain(at, w) {
		best = e.longer(best, at, e.distance)
	}
	if seen < at && uint32(load(e.value, seen)) == uint32(w) {
		best = e.longer(best, at, at-seen)
	}
	if from := int(e.long[longHash(w)]); load(e.content, from) == w {
		return e.longer(best, at, at+e.size-from)
	}
	if from := int(e.short[shortHash(w)]); (load(e.content, from)^w)<<(64-8*farMatch) == 0 {
		return e.longer(best, at, at+e.size-from)
	}
	return best
}

// hasAgain reports whether there is a match at the distance of the last reference.
func (e *encoder) hasAgain(at int, w uint64) bool {
	if e.distance <= at {
		return uint32(load(e.value, at-e.distance)) == uint32(w)
	}
	from := at + e.size - e.distance
	return from >= 0 && from < e.size && uint32(load(e.content, from)) == uint32(w)
}

// longer returns the match at a distance, or best if that saves as much.
func (e *encoder) longer(best match, at, distance int) match {
	from, source := e.source(at - distance)
	m := match{at, distance, equalBytes(e.value[at:], source[from:])}
	if m.length < leastMatch || best.length > 0 && e.saves(m) <= e.saves(best) {
		return best
	}
	return m
}

// source returns what has the byte at a position, which is negative in the dictionary, and where it is there.
func (e *encoder) source(position int) (int, []byte) {
	if position < 0 {
		return position + e.size, e.content[:e.size]
	}
	return position, e.value
}

// saves returns by how many bytes a reference is shorter than the match.
func (e *encoder) saves(m match) int {
	if m.distance == e.distance || m.distance < nearDistance && m.length <= nearLength {
		return m.length - 2
	}
	return m.length - 3
}

// extended returns the match with equal bytes before it, as far as they are not in the block.
func (e *encoder) extended(m match) match {
	from, source := e.source(m.at - m.distance)
	for m.at > e.done && from > 0 && e.value[m.at-1] == source[from-1] {
		m.at, from, m.length = m.at-1, from-1, m.length+1
	}
	return m
}

// The tags of S2, in the two lowest bits of a byte.
const (
	literalTag, nearTag, farTag = 0, 1, 2
	// nearDistance and nearLength are bounds of references of two bytes, and farLength that of three bytes.
	nearDistance, nearLength, farLength = 1 << 11, 11, 64
)

// literals copies the value to the block until a position.
func (e *encoder) literals(until int) {
	n := until - e.done
	switch last := n - 1; {
	case n == 0:
		return
	case last < 60:
		e.block = append(e.block, byte(last<<2|literalTag))
	case last < 1<<8:
		e.block = append(e.block, 60<<2|literalTag, byte(last))
	default:
		e.block = append(e.block, 61<<2|literalTag, byte(last), byte(last>>8))
	}
	e.block = append(e.block, e.value[e.done:until]...)
	e.done = until
}

// reference continues the block with bytes at a distance.
func (e *encoder) reference(distance, length int) {
	e.done += length
	if distance == e.distance {
		e.again(length)
		return
	}
	e.distance = distance
	first := length
	if first > farLength {
		first = farLength - leastMatch
	}
	if distance < nearDistance && (length <= nearLength || length > farLength) {
		first = min(length, nearLength)
		e.block = append(e.block, byte(distance>>8<<5|(first-leastMatch)<<2|nearTag), byte(distance))
	} else {
		e.block = append(e.block, byte((first-1)<<2|farTag), byte(distance), byte(distance>>8))
	}
	if length > first {
		e.again(length - first)
	}
}

// again continues the block with bytes at the distance of the reference before: at least leastMatch.
func (e *encoder) again(length int) {
	length -= leastMatch
	switch {
	case length <= 4:
		e.block = append(e.block, byte(length<<2|nearTag), 0)
	case length < 4+1<<8:
		e.block = append(e.block, 5<<2|nearTag, 0, byte(length-4))
	default:
		length -= 1 << 8
		e.block = append(e.block, 6<<2|nearTag, 0, byte(length), byte(length>>8))
	}
}

// equalBytes returns how many first bytes of both are equal.
func equalBytes(a, b []byte) int {
	n := 0
	for ; len(a) >= word && len(b) >= word; a, b = a[word:], b[word:] {
		if differ := load(a, 0) ^ load(b, 0); differ != 0 {
			return n + bits.TrailingZeros64(differ)/8
		}
		n += word
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			break
		}
		n++
	}
	return n
}

// load returns the word at a position.
func load(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) }

// multiplier is a prime that spreads bits of a word to its highest ones.
const multiplier = 0x9e3779b185ebca87

func valueHash(w uint64) uint64 { return w << (64 - 8*leastMatch) * multiplier >> (64 - valueBits) }
func shortHash(w uint64) uint64 { return w << (64 - 8*farMatch) * multiplier >> (64 - dictionaryBits) }
func longHash(w uint64) uint64  { return w * multiplier >> (64 - dictionaryBits) }
