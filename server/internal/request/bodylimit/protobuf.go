package bodylimit

import (
	"bytes"
	"fmt"
	"io"
	"mime"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// maxProtobuf is the maximum size of a measured protobuf body. The server does not read longer bodies.
	maxProtobuf = 3 << 20
	// maxNesting is the maximum nesting of messages. Definitions need three messages for each level of a schema.
	maxNesting = 300
)

func isProtobuf(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/vnd.kubernetes.protobuf"
}

// protobufBody is a body that fails if it has too many values: an empty message takes two bytes in the body, and some hundred in memory.
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

// whole is the content that was read of a body, and the rest of the body.
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

// prefix of Kubernetes' protobuf encoding.
var prefix = []byte("k8s\x00")

// measureProtobuf returns an error if a protobuf body exceeds a limit, or is not of the kind that it names. Decoders also allocate the part
// before a decoding error.
func measureProtobuf(content []byte) error {
	wrapped, ok := bytes.CutPrefix(content, prefix)
	if !ok {
		return nil // no decoder accepts it
	}
	var object runtime.Unknown // wraps every object
	if err := object.Unmarshal(wrapped); err != nil {
		return nil // no decoder accepts it
	}
	kind := object.GroupVersionKind()
	if kind.Kind == "" || kind.Version == "" { // decoders replace a missing kind with the expected one
		return apierrors.NewBadRequest("the body of the request does not name its kind in protobuf")
	}
	known := shapeOfKind(kind)
	if known == nil {
		return nil // no decoder accepts it
	}
	m := protobufMeasure{}
	m.message(object.Raw, known, 0)
	switch {
	case m.depth > maxNesting:
		return tooMuch("has messages that are nested more than %d deep", maxNesting)
	case m.values > maxValues:
		return tooMuch("has more than %d values", maxValues)
	case m.squares > maxSquares:
		return tooMuch("has a list with more than %d items, or several long lists", 20_000)
	case m.unread:
		return apierrors.NewBadRequest(fmt.Sprintf("the body of the request is not an object of kind %s in protobuf", kind.Kind))
	}
	return nil
}

// field returns the first field of a message, its content if it has a length, and its size in bytes. The size is negative if the field is
// invalid.
func field(content []byte) (number protowire.Number, kind protowire.Type, within []byte, n int) {
	number, kind, tag := protowire.ConsumeTag(content)
	if tag < 0 {
		return number, kind, nil, tag
	}
	if kind == protowire.BytesType {
		within, n = protowire.ConsumeBytes(content[tag:])
	} else {
		n = protowire.ConsumeFieldValue(number, kind, content[tag:])
	}
	if n < 0 {
		return number, kind, nil, n
	}
	return number, kind, within, tag + n
}

type protobufMeasure struct {
	values, squares, depth int
	unread                 bool // a message is invalid
}

// message counts the values in a message.
func (m *protobufMeasure) message(content []byte, s *shape, depth int) {
	if m.depth = max(m.depth, depth); depth > maxNesting {
		return
	}
	fields := 0
	for len(content) > 0 {
		number, kind, within, n := field(content)
		if n < 0 {
			m.unread = true
			break
		}
		content = content[n:]
		fields++
		m.values++
		if inner := s.field(number); inner != nil && kind == protowire.BytesType {
			m.message(within, inner, depth+1)
		}
	}
	m.squares += fields * fields
}
