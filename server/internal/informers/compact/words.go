package compact

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	// Words have a length that pays, and are not so many that whoever chooses names could fill the memory with them.
	shortest, longest = 3, 256
	most              = 1 << 16
	// remembered is how many strings that came once are known, to learn which come again.
	remembered = 1 << 12
)

// words numbers the strings that several objects have in common. They are kept for good.
type words struct {
	seed     maphash.Seed
	sighted  [remembered]sighting
	numbers  map[string]uint64
	numbered atomic.Pointer[[]string]
}

// sighting is a string that was seen, and in which object, as hashes.
type sighting struct{ word, object uint64 }

func newWords() *words {
	w := &words{seed: maphash.MakeSeed(), numbers: map[string]uint64{}}
	w.numbered.Store(&[]string{})
	return w
}

// number returns the number of s, if it has come in other objects than this one.
func (w *words) number(s string, object uint64) (uint64, bool) {
	if len(s) < shortest || len(s) > longest {
		return 0, false
	}
	if n, ok := w.numbers[s]; ok {
		return n, true
	}
	now := sighting{maphash.String(w.seed, s), object}
	before := &w.sighted[now.word%remembered]
	if before.word != now.word {
		// Chance decides, or of two words of every object that have one place neither would be there when it comes again.
		if (now.word^now.object)&remembered == 0 {
			*before = now
		}
		return 0, false
	}
	all := *w.numbered.Load()
	if before.object == object || len(all) == most {
		return 0, false
	}
	s = strings.Clone(s)
	n := uint64(len(all))
	all = append(all, s)
	w.numbers[s] = n
	w.numbered.Store(&all)
	return n, true
}

func (w *words) word(n uint64) string { return (*w.numbered.Load())[n] }
