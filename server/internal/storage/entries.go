package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

type modifiedOnEntryKey struct{}

// WithModifiedOnEntry returns a context whose watches deliver MODIFIED for an object that begins to match their selector by an
// update, where Kubernetes delivers ADDED. It is for selectors that no object matches when it is created; initial events stay ADDED.
func WithModifiedOnEntry(ctx context.Context) context.Context {
	return context.WithValue(ctx, modifiedOnEntryKey{}, true)
}

// watchEntries is a watch in a context of WithModifiedOnEntry.
func watchEntries(ctx context.Context, s storage.Interface, key string, opts storage.ListOptions) (watch.Interface, error) {
	// Initial objects were last written before the watch began.
	begin, err := s.GetCurrentResourceVersion(ctx)
	if err != nil {
		return nil, err
	}
	version, err := s.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if version > 0 && (opts.SendInitialEvents == nil || !*opts.SendInitialEvents) {
		begin = version // only changes are delivered
	}
	entries, err := s.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(entries, func(e watch.Event) (watch.Event, bool) {
		if e.Type != watch.Added {
			return e, true
		}
		if written, err := s.Versioner().ObjectResourceVersion(e.Object); err == nil && written > begin {
			e.Type = watch.Modified
		}
		return e, true
	}), nil
}
