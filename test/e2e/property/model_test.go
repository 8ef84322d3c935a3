package property

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// id names an object within its cluster.
type id struct {
	kind            *kind
	namespace, name string
}

func (i id) String() string { return i.kind.plural + " " + i.namespace + "/" + i.name }

// state is what an object holds. The version and the uid are the server's.
type state struct {
	value, color, note string
	uid, version       string
}

// same tells whether two states are equal, where what the server gives counts only if both have it.
func (s state) same(other state) bool {
	known := func(a, b string) bool { return a == "" || b == "" || a == b }
	return s.value == other.value && s.color == other.color && s.note == other.note && known(s.uid, other.uid) && known(s.version, other.version)
}

// Types of events.
const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
)

// change is one write, and what a watch should tell of it. The version of a deletion is not known.
type change struct {
	event string
	id    id
	state state
}

// model is what one scope of one cluster should hold: a namespace, or what is in none. Its owner is one actor.
type model struct {
	objects map[id]state
	history []change
}

func newModel() *model { return &model{objects: map[id]state{}} }

// set records that an object was created or changed.
func (m *model) set(i id, s state) {
	event := modified
	if _, exists := m.objects[i]; !exists {
		event = added
	}
	m.objects[i] = s
	m.history = append(m.history, change{event, i, s})
}

// remove records that an object was deleted.
func (m *model) remove(i id) {
	last := m.objects[i]
	last.version = ""
	delete(m.objects, i)
	m.history = append(m.history, change{deleted, i, last})
}

// selector chooses objects as a client asks for them; the zero value chooses all.
type selector struct{ color, name string }

func (s selector) matches(i id, of state) bool {
	return (s.color == "" || s.color == of.color) && (s.name == "" || s.name == i.name)
}

// selected returns the objects of a kind.
func (m *model) selected(k *kind, which selector) map[id]state {
	found := map[id]state{}
	for i, s := range m.objects {
		if i.kind == k && which.matches(i, s) {
			found[i] = s
		}
	}
	return found
}

// names returns the names of all objects of a kind, in the order of their values: generated names are not the same for the
// same seed, values are but for the marker.
func (m *model) names(k *kind) []string {
	values := map[string]string{}
	for i, s := range m.selected(k, selector{}) {
		values[s.value] = i.name
	}
	var names []string
	for _, value := range slices.Sorted(maps.Keys(values)) {
		names = append(names, values[value])
	}
	return names
}

// since returns the changes of a kind after the first n of the history, as a watch with a selector tells them.
func (m *model) since(n int, k *kind, which selector) []change {
	matched := map[id]*state{}
	var out []change
	for at, c := range m.history {
		if c.id.kind != k {
			continue
		}
		before := matched[c.id]
		matched[c.id] = nil
		if now := c.state; c.event != deleted && which.matches(c.id, now) {
			matched[c.id] = &now
		}
		now := matched[c.id]
		switch {
		case before == nil && now != nil:
			c.event = added
		case before != nil && now != nil:
			c.event = modified
		case before != nil && now == nil: // watches tell the state that matched, at the version of the change
			c.event, c.state = deleted, *before
			c.state.version = ""
		default:
			continue
		}
		if at >= n {
			out = append(out, c)
		}
	}
	return out
}

// compareObjects returns what differs between the objects of a model and those that were read.
func compareObjects(want, got map[id]state) error {
	for i, s := range want {
		found, ok := got[i]
		switch {
		case !ok:
			return fmt.Errorf("%s is missing; the model has %+v", i, s)
		case !s.same(found):
			return fmt.Errorf("%s is %+v; the model has %+v", i, found, s)
		}
	}
	for i, s := range got {
		if _, ok := want[i]; !ok {
			return fmt.Errorf("%s is %+v, and the model has none", i, s)
		}
	}
	return nil
}

// event is what a watch delivered.
type event struct {
	change
	// terminating tells that the object was waiting for the end of its content.
	terminating bool
}

// compareEvents returns what differs between a history and what a watch delivered of it: for each object exactly the same
// changes in the same order, and ever greater versions.
func compareEvents(want []change, got []event) error {
	if err := ascending(got); err != nil {
		return err
	}
	wanted, delivered := map[id][]change{}, map[id][]change{}
	for _, c := range want {
		wanted[c.id] = append(wanted[c.id], c)
	}
	for _, e := range got {
		if e.event == modified && e.terminating {
			continue // a namespace that goes tells so by itself
		}
		delivered[e.id] = append(delivered[e.id], e.change)
	}
	for i := range maps.Keys(delivered) {
		if _, ok := wanted[i]; !ok {
			return fmt.Errorf("the watch tells %+v of %s, of which the model has no change", delivered[i], i)
		}
	}
	for i, changes := range wanted {
		for n, c := range changes {
			if n >= len(delivered[i]) {
				return fmt.Errorf("the watch does not tell %s %+v of %s", c.event, c.state, i)
			}
			d := delivered[i][n]
			if d.event != c.event || !c.state.same(d.state) {
				return fmt.Errorf("the watch tells %s %+v of %s; the model has %s %+v", d.event, d.state, i, c.event, c.state)
			}
		}
		if len(delivered[i]) > len(changes) {
			return fmt.Errorf("the watch tells %+v of %s after all that the model has", delivered[i][len(changes):], i)
		}
	}
	return nil
}

// ascending checks that every event is newer than the one before it.
func ascending(events []event) error {
	var last uint64
	for _, e := range events {
		version, err := strconv.ParseUint(e.state.version, 10, 64)
		if err != nil {
			return fmt.Errorf("the version of %s: %w", e.id, err)
		}
		if version <= last {
			return fmt.Errorf("the watch tells %s of %s at %d after an event of %d", e.event, e.id, version, last)
		}
		last = version
	}
	return nil
}
