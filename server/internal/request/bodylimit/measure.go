package bodylimit

import (
	"encoding/json"
	"fmt"
	"io"

	goyaml "go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"
)

// What a body may hold. Objects of 1.5 MB, which is what storage takes, are far below, unless they were made for it.
const (
	// maxValues is how many values there may be: in memory each takes some hundred bytes.
	maxValues = 200_000
	// maxDepth is how deep they may be nested.
	maxDepth = 1000
	// maxSquares is the sum of the squares of how many values each list and object has: the tracking of field owners takes that
	// long for what is not sorted. One list may have 20,000 items.
	maxSquares = 20_000 * 20_000
	// maxPaths is the sum of the lengths of the paths of all values: validation writes down each of them.
	maxPaths = 128 << 20
	// maxYAML is the size of YAML, before and after its aliases are replaced by what they stand for.
	maxYAML = 3 << 20
)

// measure follows the tokens of JSON, and knows when there is more than may be.
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

// container is a list or an object that has not ended.
type container struct {
	n      int
	key    int // length of the current one
	object bool
	isKey  bool // what follows
}

// add goes on with p, and returns what is too much.
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
			// as upstream answers, at ten times as deep
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

// value counts one.
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
		return tooMuch("has too many values in its largest lists and objects; one may have %d", 20_000)
	case m.paths > maxPaths:
		return tooMuch("has too many values with long paths: all paths together have more than %d bytes", maxPaths)
	}
	return nil
}

func tooMuch(format string, args ...any) error {
	return apierrors.NewRequestEntityTooLargeError("the body of the request " + fmt.Sprintf(format, args...))
}

// measured is a body of JSON that fails where there is too much in it.
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

// yamlBody is a body of YAML. It is read and measured as a whole.
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

// measureYAML returns what is too much in YAML, and nil if it cannot be read: that is for decoders to tell.
func measureYAML(content []byte) error {
	if !json.Valid(content) { // JSON is YAML, without aliases
		document := &goyaml.Node{}
		if goyaml.Unmarshal(content, document) != nil {
			return nil
		}
		e := expansion{known: map[*goyaml.Node]amount{}}
		if all := e.of(document); all.bytes > maxYAML || all.values > maxValues {
			return tooMuch("has more than %d bytes or %d values after its aliases are replaced by what they stand for", maxYAML, maxValues)
		}
		converted, err := yaml.YAMLToJSON(content)
		if err != nil {
			return nil
		}
		content = converted
	}
	return (&measure{}).add(content)
}

// expansion tells how large nodes are after aliases are replaced.
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
		e.known[node] = amount{values: maxValues + 1} // of an alias within what it stands for
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
