package bodylimit

import (
	"encoding/json"
	"fmt"
	"io"

	goyaml "go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"
)

// Limits of a body. Objects of 1.5 MB, the maximum of the storage, are far below the limits unless a client makes them exceed the limits.
const (
	// maxValues is the maximum number of values. Each takes some hundred bytes in memory.
	maxValues = 200_000
	// maxDepth is the maximum nesting of values.
	maxDepth = 1000
	// maxSquares is the maximum sum, over all lists and objects, of the squares of their numbers of values: the tracking of field owners takes
	// this much time for unsorted values. One list may have 20,000 items.
	maxSquares = 20_000 * 20_000
	// maxPaths is the maximum sum of the lengths of the paths of all values: validation creates each path.
	maxPaths = 128 << 20
	// maxYAML is the maximum size of YAML, before and after aliases are expanded.
	maxYAML = 3 << 20
)

// measure follows the tokens of JSON, and detects when they exceed a limit.
type measure struct {
	stack     []container
	values    int
	squares   int
	paths     int
	path      int // length of the path to the innermost container
	text      int // length of the string so far
	inText    bool
	escaped   bool
	inLiteral bool
}

// container is an open list or object.
type container struct {
	n      int
	key    int // length of the current key
	object bool
	isKey  bool // a key follows
}

// add measures p, and returns an error if a limit is exceeded.
func (m *measure) add(p []byte) error {
	for _, b := range p {
		switch {
		case m.inText && m.escaped:
			m.escaped = false
			m.text++
			continue
		case m.inText && b == '"':
			m.inText = false
			if top := m.top(); top != nil && top.isKey {
				top.key = m.text
			}
			continue
		case m.inText:
			m.escaped = b == '\\'
			m.text++
			continue
		}
		if err := m.structure(b); err != nil {
			return err
		}
	}
	return nil
}

// structure handles a byte outside of strings.
func (m *measure) structure(b byte) error {
	literal := false
	switch b {
	case '"':
		m.inText, m.text = true, 0
		if top := m.top(); top == nil || !top.isKey {
			if err := m.value(); err != nil {
				return err
			}
		}
	case '{', '[':
		if err := m.value(); err != nil {
			return err
		}
		if top := m.top(); top != nil {
			m.path += top.key + 1
		}
		if len(m.stack) == maxDepth {
			// the message of upstream, which allows ten times this depth
			return apierrors.NewBadRequest(fmt.Sprintf("the body of the request is nested more than %d deep", maxDepth))
		}
		m.stack = append(m.stack, container{object: b == '{', isKey: b == '{'})
	case '}', ']':
		if len(m.stack) > 0 {
			m.stack = m.stack[:len(m.stack)-1]
		}
		if top := m.top(); top != nil {
			m.path -= top.key + 1
		}
	case ',':
		if top := m.top(); top != nil {
			top.isKey = top.object
		}
	case ':':
		if top := m.top(); top != nil {
			top.isKey = false
		}
	case ' ', '\t', '\n', '\r':
	default:
		literal = true
		if !m.inLiteral {
			if err := m.value(); err != nil {
				return err
			}
		}
	}
	m.inLiteral = literal
	return nil
}

func (m *measure) top() *container {
	if len(m.stack) == 0 {
		return nil
	}
	return &m.stack[len(m.stack)-1]
}

// value counts a value.
func (m *measure) value() error {
	m.values++
	if top := m.top(); top != nil {
		top.n++
		m.squares += 2*top.n - 1
		m.paths += m.path + top.key
	}
	switch {
	case m.values > maxValues:
		return tooMuch("has more than %d values", maxValues)
	case m.squares > maxSquares:
		return tooMuch("has too many values in its largest lists and objects; a single one may have %d", 20_000)
	case m.paths > maxPaths:
		return tooMuch("has too many values with long paths: all paths together have more than %d bytes", maxPaths)
	}
	return nil
}

func tooMuch(format string, args ...any) error {
	return apierrors.NewRequestEntityTooLargeError("the body of the request " + fmt.Sprintf(format, args...))
}

// measured is a JSON body that fails when it exceeds a limit.
type measured struct {
	io.ReadCloser
	measure
}

func (m *measured) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if tooMuch := m.add(p[:n]); tooMuch != nil {
		return 0, tooMuch
	}
	return n, err
}

// yamlBody is a YAML body. It is read and measured as a whole.
type yamlBody struct {
	io.ReadCloser
	content []byte
	err     error
	begun   bool
}

func (y *yamlBody) Read(p []byte) (int, error) {
	if !y.begun {
		y.begun = true
		y.content, y.err = io.ReadAll(io.LimitReader(y.ReadCloser, maxYAML+1))
		if y.err == nil && len(y.content) > maxYAML {
			y.err = tooMuch("has more than %d bytes", maxYAML)
		}
		if y.err == nil {
			y.err = measureYAML(y.content)
		}
	}
	if y.err != nil {
		return 0, y.err
	}
	if len(y.content) == 0 {
		return 0, io.EOF
	}
	n := copy(p, y.content)
	y.content = y.content[n:]
	return n, nil
}

// measureYAML returns an error if YAML exceeds a limit, and nil if it is invalid: decoders report that.
func measureYAML(content []byte) error {
	if !json.Valid(content) { // JSON is YAML, without aliases
		document := &goyaml.Node{}
		if goyaml.Unmarshal(content, document) != nil {
			return nil
		}
		e := expansion{known: map[*goyaml.Node]amount{}}
		if all := e.of(document); all.bytes > maxYAML || all.values > maxValues {
			return tooMuch("has more than %d bytes or %d values after its aliases are expanded", maxYAML, maxValues)
		}
		converted, err := yaml.YAMLToJSON(content)
		if err != nil {
			return nil
		}
		content = converted
	}
	return (&measure{}).add(content)
}

// expansion computes the size of nodes after aliases are expanded.
type expansion struct{ known map[*goyaml.Node]amount }

type amount struct{ bytes, values int }

func (e expansion) of(node *goyaml.Node) amount {
	if node.Kind == goyaml.AliasNode {
		node = node.Alias
	}
	if a, ok := e.known[node]; ok {
		return a
	}
	if node.Anchor != "" {
		e.known[node] = amount{values: maxValues + 1} // for an alias within the node that it refers to
	}
	a := amount{bytes: len(node.Value) + 3, values: 1}
	for _, within := range node.Content {
		w := e.of(within)
		a.bytes, a.values = min(a.bytes+w.bytes, maxYAML+1), min(a.values+w.values, maxValues+1)
	}
	if node.Anchor != "" {
		e.known[node] = a
	}
	return a
}
