package property

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const (
	ownMarker     = markerPrefix + "00000000000000aa"
	foreignMarker = markerPrefix + "00000000000000bb"
	ownUID        = "11111111-1111-1111-1111-111111111111"
	foreignUID    = "22222222-2222-2222-2222-222222222222"
	ownName       = namePrefix + "0000aaaa"
	foreignName   = namePrefix + "0000bbbb"
)

func TestCheckerFindsForeignDataInResponses(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString
	for _, test := range []struct {
		name    string
		header  http.Header
		body    string
		knows   []string
		foreign bool
	}{
		{name: "the own content", body: ownMarker + `.1 of ` + ownName + ` {"uid":"` + ownUID + `"} ` + encoded([]byte(ownMarker+".1"))},
		{name: "a foreign marker", body: `{"a":"` + foreignMarker + `.7"}`, foreign: true},
		{name: "a foreign marker among its own", body: strings.Repeat(ownMarker, 3) + foreignMarker, foreign: true},
		{name: "a foreign marker in base64", body: `{"a":"` + encoded([]byte(foreignMarker+"-p-one.3")) + `"}`, foreign: true},
		{name: "a foreign marker in a header", header: http.Header{"Warning": {`299 - "` + foreignMarker + `"`}}, foreign: true},
		{name: "a foreign marker of a cluster that the client knows", body: foreignMarker, knows: []string{foreignName}, foreign: true},
		{name: "the name of a foreign cluster", body: "not found in " + foreignName, foreign: true},
		{name: "the name of a foreign cluster that is in the request", body: "not found in " + foreignName, knows: []string{foreignName}},
		{name: "a foreign uid", body: `{"metadata":{"uid":"` + foreignUID + `"}}`, foreign: true},
		{name: "a uid that was never seen", body: `{"metadata":{"uid":"33333333-3333-3333-3333-333333333333"}}`},
		{name: "text that only resembles a marker", body: markerPrefix + "is-no-marker"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &secrets{}
			for _, name := range []string{ownName, foreignName} {
				s.names.Store(name, true)
			}
			s.uids.Store(foreignUID, foreignName)
			found := s.foreign(reader{cluster: ownName, markers: []string{ownMarker, ""}, knows: test.knows}, test.header, []byte(test.body))
			if (len(found) > 0) != test.foreign {
				t.Errorf("found %v", found)
			}
		})
	}
}

func TestUIDsBelongToFirstClusterThatReturnsThem(t *testing.T) {
	s := &secrets{}
	body := []byte(`{"uid":"` + ownUID + `"}`)
	if found := s.foreign(reader{cluster: ownName}, nil, body); len(found) > 0 {
		t.Errorf("found %v in the first cluster", found)
	}
	if found := s.foreign(reader{cluster: foreignName}, nil, body); len(found) == 0 {
		t.Error("the UID is not found in a second cluster")
	}
}

// lived returns a model with a history, and the events of a watch of it.
func lived() (*model, []event) {
	m := newModel()
	at := func(n int) string { return fmt.Sprint(n) }
	one, two := id{configMaps, "p-one", "one"}, id{configMaps, "p-one", "two"}
	m.set(one, state{value: "a", color: "red", uid: "u1", version: at(10)})
	m.set(two, state{value: "b", color: "blue", uid: "u2", version: at(11)})
	m.set(id{secretKind, "p-one", "one"}, state{value: "s", version: at(12)})
	m.set(one, state{value: "c", color: "blue", uid: "u1", version: at(13)})
	m.set(two, state{value: "d", color: "red", uid: "u2", version: at(14)})
	m.remove(two)
	m.set(two, state{value: "e", color: "red", uid: "u3", version: at(16)})
	var told []event
	for n, c := range m.history {
		if c.id.kind != configMaps {
			continue
		}
		if c.event == deleted {
			c.state.version = at(10 + n)
		}
		told = append(told, event{change: c})
	}
	return m, told
}

func TestCheckerFindsErrorsInWatches(t *testing.T) {
	m, told := lived()
	if err := compareEvents(m.since(0, configMaps, selector{}), told); err != nil {
		t.Fatalf("a correct watch: %v", err)
	}
	stray := event{change: change{added, id{configMaps, "p-one", "stray"}, state{value: "x", version: "12"}}}
	change := func(n int, f func(*event)) func([]event) []event {
		return func(events []event) []event { f(&events[n]); return events }
	}
	for name, spoil := range map[string]func([]event) []event{
		"an injected event":         func(e []event) []event { return slices.Insert(e, 2, stray) },
		"a missing event":           func(e []event) []event { return slices.Delete(e, 1, 2) },
		"a missing last event":      func(e []event) []event { return e[:len(e)-1] },
		"no event":                  func([]event) []event { return nil },
		"a repeated event":          func(e []event) []event { return slices.Insert(e, 1, e[0]) },
		"events in the wrong order": func(e []event) []event { e[0], e[1] = e[1], e[0]; return e },
		"another value":             change(2, func(e *event) { e.state.value = "z" }),
		"another type":              change(0, func(e *event) { e.event = modified }),
		"another version":           change(0, func(e *event) { e.state.version = "9" }),
		"another uid":               change(4, func(e *event) { e.state.uid = "u9" }),
		"another namespace":         change(0, func(e *event) { e.id.namespace = "p-two" }),
	} {
		t.Run(name, func(t *testing.T) {
			if err := compareEvents(m.since(0, configMaps, selector{}), spoil(slices.Clone(told))); err == nil {
				t.Error("the checker finds no error")
			}
		})
	}
}

func TestModelReturnsChangesForSelectors(t *testing.T) {
	m, _ := lived()
	tell := func(from int, which selector) string {
		var out []string
		for _, c := range m.since(from, configMaps, which) {
			out = append(out, c.event+" "+c.id.name+" "+c.state.value)
		}
		return strings.Join(out, ", ")
	}
	for _, test := range []struct {
		from  int
		which selector
		want  string
	}{
		{0, selector{color: "red"}, "ADDED one a, DELETED one a, ADDED two d, DELETED two d, ADDED two e"},
		{0, selector{color: "blue"}, "ADDED two b, ADDED one c, DELETED two b"},
		{3, selector{color: "red"}, "DELETED one a, ADDED two d, DELETED two d, ADDED two e"},
		{0, selector{name: "one"}, "ADDED one a, MODIFIED one c"},
		{1, selector{name: "one"}, "MODIFIED one c"},
		{0, selector{color: "green"}, ""},
	} {
		if got := tell(test.from, test.which); got != test.want {
			t.Errorf("from %d with %+v: got %s, want %s", test.from, test.which, got, test.want)
		}
	}
}

func TestCheckerFindsErrorsInLists(t *testing.T) {
	m, _ := lived()
	want := m.selected(configMaps, selector{})
	one := id{configMaps, "p-one", "one"}
	with := func(f func(map[id]state)) map[id]state {
		got := m.selected(configMaps, selector{})
		f(got)
		return got
	}
	if err := compareObjects(want, with(func(map[id]state) {})); err != nil {
		t.Fatalf("a correct list: %v", err)
	}
	for name, got := range map[string]map[id]state{
		"a missing object": with(func(l map[id]state) { delete(l, one) }),
		"a foreign object": with(func(l map[id]state) { l[id{configMaps, "p-one", "foreign"}] = state{value: "x"} }),
		"an object of the same name with another value": with(func(l map[id]state) { l[one] = state{value: "x", color: "blue", uid: "u1", version: "13"} }),
		"an older version": with(func(l map[id]state) { l[one] = state{value: "c", color: "blue", uid: "u1", version: "12"} }),
		"another identity": with(func(l map[id]state) { l[one] = state{value: "c", color: "blue", uid: "u9", version: "13"} }),
	} {
		if err := compareObjects(want, got); err == nil {
			t.Errorf("%s: the checker finds no error", name)
		}
	}
}

func TestCheckerFindsObjectsWithAnotherCluster(t *testing.T) {
	object := configMaps.object(id{configMaps, "p-one", "one"}, state{value: ownMarker, color: "red"})
	annotations := object["metadata"].(map[string]any)["annotations"].(map[string]any)
	for cluster, fine := range map[string]bool{ownName: true, foreignName: false, "": false} {
		annotations[clusterAnnotation] = cluster
		if _, _, err := configMaps.parse(ownName, object); (err == nil) != fine {
			t.Errorf("an object of the cluster %q: %v", cluster, err)
		}
	}
	annotations[clusterAnnotation] = ownName
	object["data"] = map[string]any{"value": foreignMarker}
	if _, _, err := configMaps.parse(ownName, object); err == nil {
		t.Error("the checker does not find content that differs from the value")
	}
}
