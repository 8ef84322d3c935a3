package index

import "github.com/kcplane/kcp/server/logicalcluster"

// packed is the name of a logical cluster in 16 bytes: two numbers of twelve digits with base 38. The zero value is no name.
type packed [4]uint32

const (
	packedDigits = 12
	// maxName is the maximum length of a name. Generated names have 16 characters, those of homes 13.
	maxName = 2 * packedDigits
	base    = 38
)

// alphabet are the digits. Zero ends a name.
const alphabet = "\x000123456789abcdefghijklmnopqrstuvwxyz-"

func digit(c byte) uint64 {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c-'0') + 1
	case 'a' <= c && c <= 'z':
		return uint64(c-'a') + 11
	case c == '-':
		return 37
	}
	return 0
}

// pack returns the packed form of a name; false if the name is longer than names of logical clusters, or has other characters.
func pack(name logicalcluster.Name) (p packed, ok bool) {
	if name == "" || len(name) > maxName {
		return packed{}, false
	}
	var words [2]uint64
	for i := range maxName {
		var d uint64
		if i < len(name) {
			if d = digit(name[i]); d == 0 {
				return packed{}, false
			}
		}
		words[i/packedDigits] = words[i/packedDigits]*base + d
	}
	return packed{uint32(words[0] >> 32), uint32(words[0]), uint32(words[1] >> 32), uint32(words[1])}, true
}

// name returns what pack has packed.
func (p packed) name() logicalcluster.Name {
	var text [maxName]byte
	for w := range 2 {
		word := p.word(w)
		for i := packedDigits - 1; i >= 0; i-- {
			text[w*packedDigits+i] = alphabet[word%base]
			word /= base
		}
	}
	length := 0
	for length < maxName && text[length] != 0 {
		length++
	}
	return logicalcluster.Name(text[:length])
}

func (p packed) word(i int) uint64 { return uint64(p[2*i])<<32 | uint64(p[2*i+1]) }
