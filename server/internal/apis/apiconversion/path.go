package apiconversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Path addresses a field of an object by the names of fields and the keys of maps.
type Path []string

// plainKey matches keys that need no quotes.
var plainKey = regexp.MustCompile(`^[A-Za-z0-9_$-]+`)

// ParsePath parses the syntax in the documentation of the package.
func ParsePath(text string) (Path, error) {
	var path Path
	rest := text
	for first := true; rest != "" || first; first = false {
		if strings.HasPrefix(rest, "[") {
			decoder := json.NewDecoder(strings.NewReader(rest[1:]))
			var key *string
			if err := decoder.Decode(&key); errors.Is(err, io.EOF) || err != nil || key == nil {
				return nil, fmt.Errorf(`path %q: expected a key in double quotes after "["`, text)
			}
			after := rest[1+decoder.InputOffset():]
			if !strings.HasPrefix(after, "]") {
				return nil, fmt.Errorf(`path %q: expected "]" after the key %q`, text, *key)
			}
			path, rest = append(path, *key), after[1:]
			continue
		}
		after, dot := strings.CutPrefix(rest, ".")
		if !dot && !first {
			return nil, fmt.Errorf(`path %q: expected a dot before %q`, text, rest)
		}
		key := plainKey.FindString(after)
		if key == "" {
			return nil, fmt.Errorf(`path %q: expected the name of a field before %q; write other keys as ["key"]`, text, after)
		}
		path, rest = append(path, key), after[len(key):]
	}
	return path, nil
}

// String returns the form that ParsePath parses.
func (p Path) String() string {
	var text strings.Builder
	for i, key := range p {
		switch {
		case plainKey.FindString(key) != key || key == "":
			quoted, _ := json.Marshal(key) // a string
			text.WriteString("[" + string(quoted) + "]")
		case i > 0:
			text.WriteString("." + key)
		default:
			text.WriteString(key)
		}
	}
	return text.String()
}

// within reports whether p is outer or a path inside it, and returns the remaining path.
func (p Path) within(outer Path) (rest Path, ok bool) {
	if len(p) < len(outer) || !slices.Equal(p[:len(outer)], outer) {
		return nil, false
	}
	return p[len(outer):], true
}

// overlaps reports whether one of the paths is a prefix of the other.
func (p Path) overlaps(other Path) bool {
	n := min(len(p), len(other))
	return slices.Equal(p[:n], other[:n])
}

// join returns the path extended by rest.
func (p Path) join(rest ...string) Path { return slices.Concat(p, rest) }

// get returns the value at the path.
func (p Path) get(object map[string]any) (value any, found bool) {
	value, found = object, true
	for _, key := range p {
		m, isObject := value.(map[string]any)
		if !isObject {
			return nil, false
		}
		if value, found = m[key]; !found {
			return nil, false
		}
	}
	return value, found
}

// set writes the value and creates missing parent objects.
func (p Path) set(object map[string]any, value any) {
	last := len(p) - 1
	for _, key := range p[:last] {
		next, isObject := object[key].(map[string]any)
		if !isObject {
			next = map[string]any{}
			object[key] = next
		}
		object = next
	}
	object[p[last]] = value
}

// remove deletes the field.
func (p Path) remove(object map[string]any) {
	last := len(p) - 1
	if parent, found := p[:last].get(object); found {
		if m, isObject := parent.(map[string]any); isObject {
			delete(m, p[last])
		}
	}
}

// pathTree is a set of paths that is walked together with an object.
type pathTree struct {
	end   bool // of a path in the set
	below map[string]*pathTree
}

func (t *pathTree) add(path Path) {
	for _, key := range path {
		if t.below == nil {
			t.below = map[string]*pathTree{}
		}
		if t.below[key] == nil {
			t.below[key] = &pathTree{}
		}
		t = t.below[key]
	}
	t.end = true
}

// at returns the paths below the given one. A nil tree is empty.
func (t *pathTree) at(path ...string) *pathTree {
	for _, key := range path {
		if t == nil {
			return nil
		}
		t = t.below[key]
	}
	return t
}

func (t *pathTree) ends() bool { return t != nil && t.end }
