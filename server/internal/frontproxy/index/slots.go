package index

// slots is a hash table of nodes with open addressing. Zero is a free slot. A node stands after its first slot without a free slot between.
type slots struct {
	table []uint32
	used  int
}

const firstSlots = 64

// find returns the node with a hash for which is returns true; 0 without one.
func (s *slots) find(hash uint64, is func(node uint32) bool) uint32 {
	if len(s.table) == 0 {
		return 0
	}
	mask := uint64(len(s.table) - 1)
	for i := hash & mask; s.table[i] != 0; i = (i + 1) & mask {
		if is(s.table[i]) {
			return s.table[i]
		}
	}
	return 0
}

// add adds a node that is not in the table. hashOf returns the hash of any node.
func (s *slots) add(node uint32, hashOf func(uint32) uint64) {
	if (s.used+1)*5 > len(s.table)*4 {
		old := s.table
		s.table = make([]uint32, max(firstSlots, 2*len(old)))
		for _, n := range old {
			if n != 0 {
				s.place(n, hashOf(n))
			}
		}
	}
	s.place(node, hashOf(node))
	s.used++
}

func (s *slots) place(node uint32, hash uint64) {
	mask := uint64(len(s.table) - 1)
	i := hash & mask
	for s.table[i] != 0 {
		i = (i + 1) & mask
	}
	s.table[i] = node
}

// remove removes a node that is in the table, and moves nodes behind it to the free slot if it is on the way from their first slots.
func (s *slots) remove(node uint32, hashOf func(uint32) uint64) {
	mask := uint64(len(s.table) - 1)
	hole := hashOf(node) & mask
	for s.table[hole] != node {
		hole = (hole + 1) & mask
	}
	for i := (hole + 1) & mask; s.table[i] != 0; i = (i + 1) & mask {
		if first := hashOf(s.table[i]) & mask; (i-first)&mask >= (i-hole)&mask {
			s.table[hole], hole = s.table[i], i
		}
	}
	s.table[hole] = 0
	s.used--
}
