package storage

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/process/processors"
)

// few is the number of objects that one goroutine decodes as fast as several.
const few = 64

// deferredItems are the items of a list of custom resources, which are decoded on all processors after all of them are read; upstream
// decodes them one by one.
type deferredItems struct{ items []undecoded }

type undecoded struct {
	decoder  *cachingDecoder
	data     []byte
	revision uint64
	newItem  func() kruntime.Object
}

type deferredKey struct{}

// readList reads a list without selectors on the content of objects.
func readList(ctx context.Context, s *clusterStorage, key string, opts storage.ListOptions, list *unstructured.UnstructuredList) error {
	l := &deferredItems{}
	if err := s.Interface.GetList(context.WithValue(ctx, deferredKey{}, l), key, opts, list); err != nil {
		return err
	}
	if len(l.items) != len(list.Items) || !l.decode(ctx, list.Items) {
		list.Items = nil
		return s.Interface.GetList(ctx, key, opts, list) // upstream handles objects that cannot be decoded
	}
	return nil
}

// decode decodes each value into the object at its index, and reports whether all could be decoded.
func (l *deferredItems) decode(ctx context.Context, into []unstructured.Unstructured) bool {
	var next atomic.Int64
	var failed atomic.Bool
	work := func() {
		for !failed.Load() {
			i := int(next.Add(1)) - 1
			if i >= len(l.items) {
				return
			}
			item := &l.items[i]
			if ctx.Err() != nil { // stop if the request has ended, because conversions take time
				failed.Store(true)
				return
			}
			object, err := item.decoder.DecodeListItem(ctx, item.data, item.revision, item.newItem)
			custom, ok := object.(*unstructured.Unstructured)
			if err != nil || !ok {
				failed.Store(true)
				return
			}
			into[i] = *custom
			item.data = nil
		}
	}
	var workers sync.WaitGroup
	if !fairqueue.From(ctx).Crowded() {
		for range min(processors.Count()-1, len(l.items)/few) {
			workers.Go(work)
		}
	}
	work()
	workers.Wait()
	return !failed.Load()
}
