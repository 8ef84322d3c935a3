package outbound

import (
	"context"
	"io"
)

// Stream is the body of a response that ends when its context ends. Without it, a proxy would log every stream that a client closes as a
// failure.
type Stream struct {
	io.ReadCloser
	Context context.Context
}

// Read implements io.Reader.
func (s Stream) Read(into []byte) (int, error) {
	n, err := s.ReadCloser.Read(into)
	if err != nil && s.Context.Err() != nil {
		err = io.EOF
	}
	return n, err
}
