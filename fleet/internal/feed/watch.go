package feed

import (
	"context"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// follower is a watch of a feed: a position in its log, so that a slow client holds back nothing.
type follower struct {
	feed    *Feed
	selects selection
	results chan watch.Event
	stop    context.CancelFunc
}

// ResultChan implements watch.Interface.
func (w *follower) ResultChan() <-chan watch.Event { return w.results }

// Stop implements watch.Interface.
func (w *follower) Stop() { w.stop() }

// Watch returns the changes after a resource version. Without one, it starts with the present workloads.
func (f *Feed) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	selects, err := selectionOf(options)
	if err != nil {
		return nil, err
	}
	f.index.mu.Lock()
	defer f.index.mu.Unlock()
	if !f.index.ready {
		return nil, errUnknown()
	}
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	from := f.version
	var first []watch.Event
	if v := options.ResourceVersion; initial || v == "" || v == "0" {
		for _, w := range f.selected(selects) {
			first = append(first, watch.Event{Type: watch.Added, Object: w})
		}
	} else if from, err = strconv.ParseUint(v, 10, 64); err != nil {
		return nil, apierrors.NewBadRequest("resourceVersion: " + err.Error())
	}
	if initial {
		first = append(first, watch.Event{Type: watch.Bookmark, Object: bookmark(from)})
	}
	ctx, stop := context.WithCancel(ctx)
	w := &follower{feed: f, selects: selects, results: make(chan watch.Event), stop: stop}
	go w.run(ctx, from, first)
	return w, nil
}

// bookmark marks the end of the initial events.
func bookmark(version uint64) runtime.Object {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "Workload"}}
	u.SetResourceVersion(strconv.FormatUint(version, 10))
	u.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return u
}

// run delivers events until ctx ends.
func (w *follower) run(ctx context.Context, from uint64, events []watch.Event) {
	defer close(w.results)
	for {
		for _, e := range events {
			if e.Type != watch.Error {
				e.Object = e.Object.DeepCopyObject() // what the feed holds never changes
			}
			select {
			case w.results <- e:
			case <-ctx.Done():
				return
			}
			if e.Type == watch.Error {
				return
			}
		}
		var more <-chan struct{}
		events, from, more = w.feed.since(from, w.selects)
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// since returns the events after a version, the version after them, and a channel that is closed at the next change.
func (f *Feed) since(from uint64, selects selection) ([]watch.Event, uint64, <-chan struct{}) {
	f.index.mu.Lock()
	defer f.index.mu.Unlock()
	oldest := f.version
	if len(f.log) > 0 {
		oldest = f.log[0].version - 1
	}
	if from < oldest || from > f.version {
		gone := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
			Message: "the resourceVersion is not available: list again"}
		return []watch.Event{{Type: watch.Error, Object: gone}}, from, nil
	}
	var events []watch.Event
	for _, c := range f.log[uint64(len(f.log))-(f.version-from):] { // each version has one change
		if selects.matches(c.object) {
			events = append(events, watch.Event{Type: c.kind, Object: c.object})
		}
	}
	return events, f.version, f.more
}
