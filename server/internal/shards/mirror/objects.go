package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcplane/kcp/server/virtual/resources"
)

const (
	// catchUp is how long a request for a version that is not here yet waits.
	catchUp = 3 * time.Second
	// bookmarkInterval is the time between the bookmarks of a watch.
	bookmarkInterval = time.Minute
)

// objects are the objects of a follower, for readers. Nothing calls the writes.
type objects struct {
	resources.Objects
	follower *follower
}

// Get implements resources.Objects.
func (o objects) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	o.follower.mu.Lock()
	defer o.follower.mu.Unlock()
	if u := o.follower.objects[name]; u != nil {
		return u.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
}

// selection is what a reader selects.
type selection struct {
	labels labels.Selector
	fields fields.Selector
}

func selectionOf(options metav1.ListOptions) (s selection, err error) {
	if s.labels, err = labels.Parse(options.LabelSelector); err == nil {
		s.fields, err = fields.ParseSelector(options.FieldSelector)
	}
	if err != nil {
		err = apierrors.NewBadRequest(err.Error())
	}
	return s, err
}

func (s selection) matches(u *unstructured.Unstructured) bool {
	return u != nil && s.labels.Matches(labels.Set(u.GetLabels())) && s.fields.Matches(fields.Set{"metadata.name": u.GetName()})
}

// List implements resources.Objects. It ignores the limit: the publication is bounded.
func (o objects) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	selected, err := selectionOf(options)
	if err == nil {
		err = o.follower.reach(ctx, versionOf(options.ResourceVersion))
	}
	if err != nil {
		return nil, err
	}
	f := o.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	if options.Continue != "" ||
		options.ResourceVersionMatch == metav1.ResourceVersionMatchExact && versionOf(options.ResourceVersion) != f.version {
		return nil, expired(options.ResourceVersion)
	}
	list := &unstructured.UnstructuredList{}
	for _, u := range f.selected(selected) {
		list.Items = append(list.Items, *u.DeepCopy())
	}
	list.SetResourceVersion(strconv.FormatUint(f.version, 10))
	return list, nil
}

// selected returns the selected objects, by name. The caller holds mu.
func (f *follower) selected(s selection) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(f.objects)) {
		if u := f.objects[name]; s.matches(u) {
			all = append(all, u)
		}
	}
	return all
}

func expired(version string) error {
	return apierrors.NewResourceExpired(
		fmt.Sprintf("resource version %s of the published objects is not known here: list them again", version))
}

// reach waits until the objects have a version.
func (f *follower) reach(ctx context.Context, version uint64) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	for {
		f.mu.Lock()
		now, changed := f.version, f.changed
		f.mu.Unlock()
		if now >= version {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return expired(strconv.FormatUint(version, 10))
		}
	}
}

// Watch implements resources.Objects.
func (o objects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	selected, err := selectionOf(options)
	from := versionOf(options.ResourceVersion)
	if err == nil {
		err = o.follower.reach(ctx, from)
	}
	if err != nil {
		return nil, err
	}
	f := o.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &watcher{follower: f, selected: selected, options: options, epoch: f.epoch, version: from, events: make(chan watch.Event)}
	switch initial := options.SendInitialEvents; {
	case initial != nil && *initial || initial == nil && from == 0:
		w.initial, w.version = f.selected(selected), f.version
	case from == 0:
		w.version = f.version
	case from < f.oldest:
		return nil, expired(options.ResourceVersion)
	}
	f.watchers++
	ctx, w.stop = context.WithCancel(ctx)
	go w.run(ctx)
	return w, nil
}

// watcher delivers the changes after a version.
type watcher struct {
	follower *follower
	selected selection
	options  metav1.ListOptions
	initial  []*unstructured.Unstructured
	epoch    int
	version  uint64
	events   chan watch.Event
	stop     context.CancelFunc
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.stop() }

func (w *watcher) run(ctx context.Context) {
	defer close(w.events)
	defer w.stop()
	defer w.leave()
	for _, u := range w.initial {
		if !w.send(ctx, watch.Event{Type: watch.Added, Object: u.DeepCopy()}) {
			return
		}
	}
	if i := w.options.SendInitialEvents; i != nil && *i && !w.bookmark(ctx, map[string]string{metav1.InitialEventsAnnotationKey: "true"}) {
		return
	}
	w.initial = nil
	w.follow(ctx)
}

func (w *watcher) leave() {
	w.follower.mu.Lock()
	defer w.follower.mu.Unlock()
	w.follower.watchers--
	w.follower.used = w.follower.mirrors.clock.Now()
}

// follow delivers changes until ctx ends, or the changes after the version are not known.
func (w *watcher) follow(ctx context.Context) {
	tick := w.follower.mirrors.clock.NewTicker(bookmarkInterval)
	defer tick.Stop()
	for {
		changes, changed, ok := w.next()
		if !ok {
			status := expired(strconv.FormatUint(w.version, 10)).(apierrors.APIStatus).Status()
			w.send(ctx, watch.Event{Type: watch.Error, Object: &status})
			return
		}
		for _, c := range changes {
			if e, visible := w.eventOf(c); visible && !w.send(ctx, e) {
				return
			}
			w.version = c.version
		}
		select {
		case <-changed:
		case <-tick.C():
			if w.options.AllowWatchBookmarks && !w.bookmark(ctx, nil) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// next returns the changes after the version, and a channel that is closed at the next one. It returns false if they are not known.
func (w *watcher) next() ([]change, <-chan struct{}, bool) {
	f := w.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch != w.epoch || w.version < f.oldest || f.dropped {
		return nil, nil, false
	}
	i := slices.IndexFunc(f.history, func(c change) bool { return c.version > w.version })
	if i < 0 {
		return nil, f.changed, true
	}
	return slices.Clone(f.history[i:]), f.changed, true
}

// eventOf returns the event of a change for what is selected.
func (w *watcher) eventOf(c change) (watch.Event, bool) {
	was, is := w.selected.matches(c.before), w.selected.matches(c.after)
	switch {
	case is && was:
		return watch.Event{Type: watch.Modified, Object: c.after.DeepCopy()}, true
	case is:
		return watch.Event{Type: watch.Added, Object: c.after.DeepCopy()}, true
	case was:
		gone := c.before.DeepCopy()
		gone.SetResourceVersion(strconv.FormatUint(c.version, 10))
		return watch.Event{Type: watch.Deleted, Object: gone}, true
	}
	return watch.Event{}, false
}

// bookmark delivers the version that the client has.
func (w *watcher) bookmark(ctx context.Context, annotations map[string]string) bool {
	mark := &unstructured.Unstructured{Object: map[string]any{}}
	mark.SetGroupVersionKind(w.follower.kind)
	mark.SetResourceVersion(strconv.FormatUint(w.version, 10))
	mark.SetAnnotations(annotations)
	return w.send(ctx, watch.Event{Type: watch.Bookmark, Object: mark})
}

func (w *watcher) send(ctx context.Context, e watch.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
