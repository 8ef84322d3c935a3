package informers

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// AddChangeHandler adds h for the changes of this shard's objects from now on, without the content of the store. The returned function
// removes it.
func (i *Informer) AddChangeHandler(h Handler) (remove func()) {
	r := &registered{handler: h, at: i}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, r)
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.handlers = slices.DeleteFunc(i.handlers, func(other *registered) bool { return other == r })
	}
}

// Scan calls read with every object of this shard, some at a time, and write after each call. No handler runs during read, so that what
// read and handlers do is in the order of the changes; read must not block. write may block. Handlers receive the changes of objects that
// are created or change during the scan, which may leave them out.
func (i *Informer) Scan(ctx context.Context, read func([]runtime.Object), write func() error) error {
	i.mu.Lock()
	keys := i.store.keys()
	i.mu.Unlock()
	for some := range slices.Chunk(keys, batchSize) {
		if err := ctx.Err(); err != nil {
			return err
		}
		i.scan(some, read)
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

func (i *Informer) scan(keys []string, read func([]runtime.Object)) {
	objects := make([]runtime.Object, 0, len(keys))
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, key := range keys {
		if obj, ok := i.store.peek(key); ok {
			objects = append(objects, obj)
		}
	}
	read(objects)
}
