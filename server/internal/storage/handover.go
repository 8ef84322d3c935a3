package storage

import (
	"bytes"
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// handoverSlots is how many objects of a kind can be on their way from a write to the informer.
	handoverSlots = 64
	// handoverSize is the size in bytes of the largest of them. Together, those of a kind take at most some megabytes.
	handoverSize = 8 << 10
)

// handover passes objects that a write has decoded, to check them, or that the server itself has made, to the watch of the informer, which
// otherwise decodes the same bytes again. An object has one owner: the handover, and then who takes it. It does not matter whether a write
// succeeds, because the bytes alone identify an object. What is not taken is replaced by later objects.
type handover struct {
	mu    sync.Mutex
	slots [handoverSlots]handedOver
	next  int
}

type handedOver struct {
	data   []byte
	object runtime.Object
}

// give passes on an object that is decoded from data. The caller must not use the object any more, nor change data.
func (h *handover) give(data []byte, object runtime.Object) {
	if len(data) > handoverSize {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slots[h.next] = handedOver{data, object}
	h.next = (h.next + 1) % handoverSlots
}

// take returns an object that is decoded from data, once, or nil.
func (h *handover) take(data []byte) runtime.Object {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.slots {
		if slot := h.slots[i]; slot.object != nil && bytes.Equal(slot.data, data) {
			h.slots[i] = handedOver{}
			return slot.object
		}
	}
	return nil
}

// created is an object that the server itself creates, and that equals what reading it returns.
type created struct {
	to     *handover
	object runtime.Object
	kind   schema.GroupVersionKind // of objects that are read; empty if they have none
}

type createdKey struct{}

// handOver passes on a copy of the object that a Create of ctx stores as data, if the object is known.
func handOver(ctx context.Context, data []byte) {
	c, ok := ctx.Value(createdKey{}).(created)
	if !ok || len(data) > handoverSize {
		return
	}
	object := c.object.DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(c.kind)
	c.to.give(data, object)
}
