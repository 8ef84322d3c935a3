package builtin

import (
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// collected is how many bytes of a list are collected before they are written. It is more than the size from which upstream compresses
// responses, which it decides by the first write.
const collected = 128<<10 + 1

// buffers are of collected bytes.
var buffers = sync.Pool{New: func() any { return &[collected]byte{} }}

// listEncoding encodes lists of resources into buffers that are used again. Upstream encodes one object of a list after the other, and
// collects them in a buffer that grows with each of them: 520 KiB of garbage for a list of 125 KiB.
type listEncoding struct{ runtime.NegotiatedSerializer }

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (e listEncoding) EncoderForVersion(plain runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	encoder := e.NegotiatedSerializer.EncoderForVersion(plain, gv)
	if allocating, ok := encoder.(runtime.EncoderWithAllocator); ok {
		return listEncoder{allocating}
	}
	return encoder
}

type listEncoder struct{ runtime.EncoderWithAllocator }

// Encode implements runtime.Encoder.
func (e listEncoder) Encode(obj runtime.Object, w io.Writer) error {
	return collect(obj, w, func(w io.Writer) error { return e.EncoderWithAllocator.Encode(obj, w) })
}

// EncodeWithAllocator implements runtime.EncoderWithAllocator.
func (e listEncoder) EncodeWithAllocator(obj runtime.Object, w io.Writer, memory runtime.MemoryAllocator) error {
	return collect(obj, w, func(w io.Writer) error { return e.EncoderWithAllocator.EncodeWithAllocator(obj, w, memory) })
}

// collect collects what encode writes of a list. After an error within the collected bytes, nothing is written.
func collect(obj runtime.Object, w io.Writer, encode func(io.Writer) error) error {
	if _, ok := obj.(metav1.ListInterface); !ok {
		return encode(w)
	}
	buffer := buffers.Get().(*[collected]byte)
	defer buffers.Put(buffer)
	c := &collector{to: w, buffer: buffer}
	if err := encode(c); err != nil {
		return err
	}
	return c.flush()
}

// collector passes on what is written to it: first all that is in the buffer when it is full, and then the rest as it comes.
type collector struct {
	to     io.Writer
	buffer *[collected]byte
	length int
	passed bool
}

// Write implements io.Writer.
func (c *collector) Write(p []byte) (int, error) {
	if c.passed {
		return c.to.Write(p)
	}
	n := copy(c.buffer[c.length:], p)
	c.length += n
	if n == len(p) {
		return n, nil
	}
	if err := c.flush(); err != nil {
		return n, err
	}
	more, err := c.to.Write(p[n:])
	return n + more, err
}

func (c *collector) flush() error {
	if c.passed {
		return nil
	}
	c.passed = true
	_, err := c.to.Write(c.buffer[:c.length])
	return err
}
