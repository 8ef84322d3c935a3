package property

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// id identifies an object in its cluster.
type id struct {
	kind            *kind
	namespace, name string
}

func (i id) String() string { return i.kind.plural + " " + i.namespace + "/" + i.name }

// state is the content of an object. The server sets the version and the uid.
type state struct {
	value, color, note string
	uid, version       string
}

// same reports whether two states are equal. Fields that the server sets are compared only if both states have them.
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

// change is one write, and the event that a watch delivers for it. The version of a deletion is not known.
type change struct {
	event string
	id    id
	state state
}

// model is the expected content of one scope of a cluster: a namespace, or the cluster-scoped objects. One actor owns it.
type model struct {
	objects map[id]state
	history []change
}

func newModel() *model { return &model{objects: map[id]state{}} }

// set records that an object was created or updated.
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

// selector selects objects as a client does; the zero value selects all.
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

// names returns the names of all objects of a kind, in the order of their values: with the same seed, values are the same except for the
// marker, and generated names are not.
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

// since returns the changes of a kind after the first n of the history, as a watch with a selector delivers them.
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
		case before != nil && now == nil: // watches deliver the state that matched, with the version of the change
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

// compareObjects returns an error with the first difference between the objects of a model and those from the server.
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

// event is an event of a watch.
type event struct {
	change
	// terminating is true if the object waits for the deletion of its content.
	terminating bool
}

// compareEvents returns an error with the first difference between a history and the events of a watch: each object must have exactly the
// same changes in the same order, with increasing versions.
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
			continue // the server updates a namespace when its deletion starts
		}
		delivered[e.id] = append(delivered[e.id], e.change)
	}
	for i := range maps.Keys(delivered) {
		if _, ok := wanted[i]; !ok {
			return fmt.Errorf("the watch delivered %+v of %s, for which the model has no change", delivered[i], i)
		}
	}
	for i, changes := range wanted {
		for n, c := range changes {
			if n >= len(delivered[i]) {
				return fmt.Errorf("the watch did not deliver %s %+v of %s", c.event, c.state, i)
			}
			d := delivered[i][n]
			if d.event != c.event || !c.state.same(d.state) {
				return fmt.Errorf("the watch delivered %s %+v of %s; the model has %s %+v", d.event, d.state, i, c.event, c.state)
			}
		}
		if len(delivered[i]) > len(changes) {
			return fmt.Errorf("the watch delivered %+v of %s after all changes of the model", delivered[i][len(changes):], i)
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
			return fmt.Errorf("the watch delivered %s of %s with version %d after version %d", e.event, e.id, version, last)
		}
		last = version
	}
	return nil
}
