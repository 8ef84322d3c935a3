// Package compact encodes very many objects in few bytes: a fraction of the memory of their Go types, without pointers that the garbage
// collector has to follow.
package compact

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime"
)

// Codec packs the objects of one Go type.
//
// Invariants:
//   - Unpack returns what was given to Pack, except that times are whole seconds in the local time zone. Nil and empty slices and maps
//     stay different.
//   - What Pack has returned can be unpacked as long as the codec exists, whatever was packed since: words are only added.
//   - A packed string is valid for its codec and its key only, and not for another codec of the same type: it contains the numbers of words
//     and of the parts of the key.
//   - Only one goroutine may call Pack at a time; the caller ensures this. Any number may call Unpack, also during Pack, for strings that
//     Pack has returned.
type Codec struct {
	object reflect.Type
	coder  coder
	words  *words
}

// New returns the codec of the type of example, a pointer to a struct of strings, numbers, times, slices and maps.
func New(example runtime.Object) (*Codec, error) {
	t := reflect.TypeOf(example).Elem()
	coder, err := coderOf(t, nil)
	if err != nil {
		return nil, fmt.Errorf("objects of type %s cannot be packed: %w", t, err)
	}
	return &Codec{object: t, coder: coder, words: newWords()}, nil
}

// Know makes the codec encode s by its number, whatever its length. Only one goroutine may call Know or Pack at a time. The caller ensures
// that tenants do not choose s.
func (c *Codec) Know(s string) { c.words.add(s) }

// Pack returns the encoded obj. Times lose fractions of seconds, as in JSON. key identifies obj. Its parts, between separators, are not
// encoded again in obj.
func (c *Codec) Pack(key string, obj runtime.Object) string {
	p := &packer{words: c.words, object: maphash.String(c.words.seed, key), earlier: partsOf(key)}
	c.coder.pack(p, reflect.ValueOf(obj).Elem())
	return string(p.data)
}

// Unpack returns a new object, which shares memory with key and packed. It panics if packed is not a result of Pack with the same key.
func (c *Codec) Unpack(key, packed string) runtime.Object {
	v := reflect.New(c.object)
	c.coder.unpack(&unpacker{words: c.words, data: packed, earlier: partsOf(key)}, v.Elem())
	return v.Interface().(runtime.Object)
}

// These are the encodings of a string, in the two low bits of its first number.
const (
	plain   = iota // the number is the length of what follows
	word           // the number is that of a word
	decimal        // the string is that of the number that follows; or again, see below
	hex            // 16 bytes of a UUID follow; or located, see below
	kinds
)

const (
	// again is the first number of a string that the key or the object has before: the number of that string follows.
	again = decimal + kinds
	// located is the first number of a URL below /clusters/: the number of the word for the part until then follows, and then the rest as
	// a string.
	located = hex + kinds
	below   = "/clusters/"
)

const (
	// leastRepeated is the length of the shortest string of an object to which again refers, and repeated how many strings have a number:
	// the parts of the key, and then the first ones of the object whose encoding is plain.
	leastRepeated, repeated = 8, 11
	// leastPart is the length of the shortest part of a key to which again refers: again takes two bytes, a string one more than its length.
	leastPart = 3
	// separators are between the parts of a key.
	separators = "|/"
)

// earlier has the strings of one object that have a number.
type earlier struct {
	strings [repeated]string
	n       int
}

// partsOf numbers the parts of a key.
func partsOf(key string) earlier {
	var e earlier
	for at := 0; at >= 0; {
		part := key
		if at = strings.IndexAny(key, separators); at >= 0 {
			part, key = key[:at], key[at+1:]
		}
		e.add(part, leastPart)
	}
	return e
}

// add numbers a string of a least length.
func (e *earlier) add(s string, least int) {
	if len(s) >= least && e.n < repeated {
		e.strings[e.n] = s
		e.n++
	}
}

type packer struct {
	words  *words
	object uint64 // identifies the object
	data   []byte
	earlier
}

func (p *packer) number(n uint64) { p.data = binary.AppendUvarint(p.data, n) }

func (p *packer) string(s string) {
	if s != "" && '0' <= s[0] && s[0] <= '9' && len(s) <= 20 {
		if n, err := strconv.ParseUint(s, 10, 64); err == nil && strconv.FormatUint(n, 10) == s {
			p.number(decimal)
			p.number(n)
			return
		}
	}
	if len(s) == 36 {
		if id, err := uuid.Parse(s); err == nil && id.String() == s {
			p.number(hex)
			p.data = append(p.data, id[:]...)
			return
		}
	}
	if n, ok := p.words.number(s, p.object); ok {
		p.number(n*kinds + word)
		return
	}
	if n := slices.Index(p.strings[:p.n], s); n >= 0 {
		p.number(again)
		p.number(uint64(n))
		return
	}
	if at := strings.LastIndex(s, below) + len(below); at >= len(below) {
		if n, ok := p.words.number(s[:at], p.object); ok {
			p.number(located)
			p.number(n)
			p.string(s[at:])
			return
		}
	}
	p.number(uint64(len(s))*kinds + plain)
	p.data = append(p.data, s...)
	p.add(s, leastRepeated)
}

type unpacker struct {
	words *words
	data  string // the rest
	earlier
}

func (u *unpacker) number() uint64 {
	var n uint64
	for i := 0; ; i++ {
		b := u.data[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			u.data = u.data[i+1:]
			return n
		}
	}
}

func (u *unpacker) take(n int) string {
	taken := u.data[:n]
	u.data = u.data[n:]
	return taken
}

func (u *unpacker) string() string {
	n := u.number()
	switch {
	case n == again:
		return u.strings[u.number()]
	case n == located:
		prefix := u.words.word(u.number())
		return prefix + u.string()
	case n%kinds == word:
		return u.words.word(n / kinds)
	case n%kinds == decimal:
		return strconv.FormatUint(u.number(), 10)
	case n%kinds == hex:
		return uuid.UUID([]byte(u.take(16))).String()
	}
	s := u.take(int(n / kinds))
	u.add(s, leastRepeated)
	return s
}
