package compact

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	// The length of words is limited to what saves memory, and their number so that tenants cannot fill memory with the names they choose.
	minLength, maxLength = 3, 256
	maxWords             = 1 << 16
	// remembered is how many strings of one object are remembered, to recognize them in other objects.
	remembered = 1 << 12
)

// words numbers the strings that several objects have in common.
//
// Invariants:
//   - numbers[s] is n if and only if the list in numbered has s at index n. A word is never removed or changed, and its number is never
//     reused: packed strings refer to it.
//   - There are at most maxWords words, of minLength to maxLength bytes, and those that the caller of Know adds. A string becomes a word
//     when it is packed in a second object while its sighting in another object is remembered. Packing one object repeatedly adds no words
//     (TestStringsOfOneObjectAreNotRemembered).
//   - A word is in numbered before Pack returns a string that refers to it, and a list in numbered never changes within its length.
//     Therefore word needs no lock (TestUnpackDuringPack).
//   - Unpack uses numbered only. All other fields belong to the caller of Pack.
//
// For example, the first objects with the label value "Ready" contain its bytes. Then another one makes it word 0, and it and all later
// objects contain the number 0. The earlier strings remain valid as they are.
type words struct {
	seed     maphash.Seed
	sighted  [remembered]sighting
	numbers  map[string]uint64
	numbered atomic.Pointer[[]string]
}

// sighting has the hashes of a string, and of the object in which it was found.
type sighting struct{ word, object uint64 }

func newWords() *words {
	w := &words{seed: maphash.MakeSeed(), numbers: map[string]uint64{}}
	w.numbered.Store(&[]string{})
	return w
}

// number returns the number of s, if it was found in another object than this one.
func (w *words) number(s string, object uint64) (uint64, bool) {
	if n, ok := w.numbers[s]; ok {
		return n, true
	}
	if len(s) < minLength || len(s) > maxLength {
		return 0, false
	}
	now := sighting{maphash.String(w.seed, s), object}
	before := &w.sighted[now.word%remembered]
	if before.word != now.word {
		// Replace at random: otherwise two words of every object with the same place would always replace each other.
		if (now.word^now.object)&remembered == 0 {
			*before = now
		}
		return 0, false
	}
	if before.object == object || len(w.numbers) >= maxWords {
		return 0, false
	}
	return w.add(s), true
}

// add numbers a string.
func (w *words) add(s string) uint64 {
	if n, ok := w.numbers[s]; ok {
		return n
	}
	s = strings.Clone(s)
	all := *w.numbered.Load()
	n := uint64(len(all))
	all = append(all, s)
	w.numbers[s] = n
	w.numbered.Store(&all)
	return n
}

func (w *words) word(n uint64) string { return (*w.numbered.Load())[n] }
