package body

import (
	"io"
	"mime"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// maxProtobuf is the size of the longest body in protobuf that is looked at. The server reads none that is longer.
	maxProtobuf = 3 << 20
	// maxNesting is how deep messages may be nested. Definitions need three messages for each level of a schema.
	maxNesting = 300
	// maxVisits bounds the work: what looks like a message may be a text, and is found to be none at its end.
	maxVisits = 16 << 20
)

func isProtobuf(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/vnd.kubernetes.protobuf"
}

// protobufBody is a body that fails if it has too many values: an empty message takes two bytes, and some hundred in memory.
type protobufBody struct {
	io.ReadCloser
	rest  io.Reader
	err   error
	begun bool
}

func (b *protobufBody) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		content, err := io.ReadAll(io.LimitReader(b.ReadCloser, maxProtobuf+1))
		b.rest = &whole{content: content, next: b.ReadCloser, err: err}
		if err == nil && len(content) <= maxProtobuf {
			b.err = measureProtobuf(content)
		}
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

// whole is what was read of a body, and how it goes on.
type whole struct {
	content []byte
	next    io.Reader
	err     error
}

func (w *whole) Read(p []byte) (int, error) {
	if len(w.content) > 0 {
		n := copy(p, w.content)
		w.content = w.content[n:]
		return n, nil
	}
	if w.err != nil {
		return 0, w.err
	}
	return w.next.Read(p)
}

// prefix of the protobuf of Kubernetes.
var prefix = []byte("k8s\x00")

// measureProtobuf returns what is too much in protobuf. Nothing in it tells messages from texts: everything that can be read as a message is one.
func measureProtobuf(content []byte) error {
	if len(content) < len(prefix) {
		return nil
	}
	m := protobufMeasure{}
	values, _ := m.message(content[len(prefix):], 0)
	switch {
	case m.visits > maxVisits || m.depth > maxNesting:
		return tooMuch("has messages that are nested more than %d deep", maxNesting)
	case values > maxValues:
		return tooMuch("has more than %d values", maxValues)
	case m.squares > maxSquares:
		return tooMuch("has a list with more than %d items, or several long ones", 20_000)
	}
	return nil
}

type protobufMeasure struct{ visits, squares, depth int }

// message returns how many values there are in content, if that is a message.
func (m *protobufMeasure) message(content []byte, depth int) (values int, ok bool) {
	if m.depth = max(m.depth, depth); depth > maxNesting {
		return 0, false
	}
	squares, fields := m.squares, 0
	for len(content) > 0 {
		if m.visits++; m.visits > maxVisits {
			return 0, false
		}
		_, kind, n := protowire.ConsumeTag(content)
		if n < 0 {
			m.squares = squares
			return 0, false
		}
		content = content[n:]
		fields++
		values++
		if kind == protowire.BytesType {
			within, n := protowire.ConsumeBytes(content)
			if n < 0 {
				m.squares = squares
				return 0, false
			}
			if more, ok := m.message(within, depth+1); ok {
				values += more
			}
			content = content[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(1, kind, content); n < 0 {
			m.squares = squares
			return 0, false
		}
		content = content[n:]
	}
	m.squares += fields * fields
	return values, true
}
