package index

// marks is the number of marks of snapshots. The mark 0 is that of nothing that a snapshot confirms.
const marks = 15

// Begin begins a snapshot of a shard: what it sends from now on is marked.
func (t *Table) Begin(source string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := t.shardOf(source)
	if id == 0 {
		return
	}
	s := &t.shards[id]
	s.mark = s.mark%marks + 1
	s.stale = s.sent
	if s.open++; s.open == marks { // every mark was used by a snapshot that did not end: what has one of them must not look confirmed
		t.unmark(id)
		s.open = 1
	}
}

// End completes a snapshot: it removes what is not marked. It lets requests pass in between. After the first snapshot of a shard there is
// nothing to remove, so that a front proxy that starts does not read the whole index once for each shard.
func (t *Table) End(source string) {
	t.mu.Lock()
	id := t.shardOf(source)
	t.shards[id].open = 0
	stale := t.shards[id].stale
	t.shards[id].stale = false
	t.mu.Unlock()
	if stale {
		t.sweep(id)
	}
}

// Forget removes everything that a shard has sent.
func (t *Table) Forget(source string) {
	t.Begin(source)
	t.End(source)
}

func (t *Table) sweep(id uint16) {
	for first := uint32(0); t.sweepNodes(id, first); first += slabSize {
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	mark := t.shards[id].mark
	for key, e := range t.edges {
		if key.source == id && e.mark != mark {
			t.removeFurther(key)
		}
	}
	for key, c := range t.claims {
		if key.shard == id && c.mark != mark {
			delete(t.claims, key)
			t.unreference(key.node)
		}
	}
}

// sweepNodes sweeps one slab, and reports whether there are more.
func (t *Table) sweepNodes(id uint16, first uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	mark := t.shards[id].mark
	for i := max(first, 1); i < first+slabSize && i <= t.nodes; i++ {
		n := t.node(i)
		for n.source == id && n.marks>>4 != mark { // a further edge of the shard may take its place
			t.removeEdge(i)
		}
		if n.claimant == id && n.marks&0x0f != mark {
			t.removeClaim(i, id)
		}
	}
	return first+slabSize <= t.nodes
}

// unmark removes the marks of everything that a shard has sent.
func (t *Table) unmark(id uint16) {
	for i := uint32(1); i <= t.nodes; i++ {
		n := t.node(i)
		if n.source == id {
			n.marks &= 0x0f
		}
		if n.claimant == id {
			n.marks &= 0xf0
		}
	}
	for key, e := range t.edges {
		if key.source == id {
			e.mark = 0
		}
	}
	for key, c := range t.claims {
		if key.shard == id {
			c.mark = 0
			t.claims[key] = c
		}
	}
}
