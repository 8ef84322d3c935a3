package forward

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// bufferSize is the number of bytes of a response that are copied at once.
const bufferSize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Respond sends the response of a backend to the client, and closes it. A stream is a response whose header and parts the client gets at
// once, and which ends without an error when ctx ends.
func Respond(ctx context.Context, w http.ResponseWriter, response *http.Response, stream bool) error {
	defer response.Body.Close()
	withoutConnection(response.Header)
	add(w.Header(), "", response.Header)
	w.WriteHeader(response.StatusCode)
	flush := func() {}
	if stream || response.ContentLength < 0 {
		control := http.NewResponseController(w)
		flush = func() { _ = control.Flush() } // the next write fails too
	}
	if stream {
		flush()
	}
	err := copyBody(w, response.Body, flush)
	if err != nil && stream && ctx.Err() != nil {
		return nil
	}
	add(w.Header(), http.TrailerPrefix, response.Trailer)
	return err
}

func add(to http.Header, prefix string, from http.Header) {
	for name, values := range from {
		name = prefix + name
		if before := to[name]; len(before) > 0 {
			values = append(before[:len(before):len(before)], values...)
		}
		to[name] = values
	}
}

// copyBody copies a body, and calls flush after each part that has arrived.
func copyBody(to io.Writer, from io.Reader, flush func()) error {
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	for {
		n, err := from.Read(buffer[:])
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
			flush()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
