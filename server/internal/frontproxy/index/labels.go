package index

const (
	chunkBits = 16
	chunkSize = 1 << chunkBits
	// maxLabel is the maximum length of the name of a workspace in the index. Kubernetes allows 63 characters.
	maxLabel = 255
)

// labels keeps the names of workspaces, one after the other, each with its length before it.
type labels struct {
	chunks [][]byte
	// garbage is the number of bytes of names that are not used anymore.
	garbage, used int
}

// add returns the position of a new name, which has maxLabel bytes at most.
func (l *labels) add(name string) uint32 {
	if n := len(l.chunks); n == 0 || len(l.chunks[n-1])+1+len(name) > chunkSize {
		l.chunks = append(l.chunks, make([]byte, 0, chunkSize))
	}
	last := len(l.chunks) - 1
	at := uint32(last<<chunkBits | len(l.chunks[last]))
	l.chunks[last] = append(append(l.chunks[last], byte(len(name))), name...)
	l.used += 1 + len(name)
	return at
}

func (l *labels) at(position uint32) []byte {
	chunk, start := l.chunks[position>>chunkBits], position&(chunkSize-1)
	return chunk[start+1 : start+1+uint32(chunk[start])]
}

// drop records that a name is not used anymore.
func (l *labels) drop(position uint32) { l.garbage += 1 + len(l.at(position)) }

// wasteful reports whether copying the names that are used would free half of the memory.
func (l *labels) wasteful() bool { return l.garbage > chunkSize && l.garbage > l.used/2 }
