package pods

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// Watch implements resources.Objects. The watch ends when one of the clusters ends it, or when the pods are on other clusters: the client
// then lists again.
func (o objects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	all, passed, err := o.selected(ctx, options)
	if err != nil {
		return nil, err
	}
	var first []unstructured.Unstructured
	from := options.ResourceVersion
	if from == "" || from == "0" || options.SendInitialEvents != nil {
		list, err := o.List(ctx, metav1.ListOptions{LabelSelector: options.LabelSelector, FieldSelector: options.FieldSelector})
		if err != nil {
			return nil, err
		}
		first, from = list.Items, list.GetResourceVersion()
	}
	versions, ok := o.versions.find(o.workspace, from, all)
	if !ok {
		return nil, apierrors.NewResourceExpired("the resource version is not known, or the pods are on other clusters: list them again")
	}
	done, err := o.streams.ofWorkspace.begin(o.workspace)
	if err != nil {
		return nil, err
	}
	m := &merged{results: make(chan watch.Event), done: []func(){done}}
	m.ctx, m.stop = context.WithTimeout(ctx, streamTimeout)
	m.leave = o.watches.add(o.workspace, m.stop, func(ctx context.Context) bool {
		now, _, err := o.selected(ctx, options)
		return err == nil && slices.Equal(now, all)
	})
	passed.AllowWatchBookmarks = false
	for _, s := range all {
		if err := m.follow(o, s, passed, versions[s]); err != nil {
			m.end()
			return nil, unreachable(s, read, err)
		}
	}
	if !m.leave.same(m.ctx) { // it changed before the watch was added
		m.end()
		return nil, apierrors.NewResourceExpired("the pods are on other clusters now: list them again")
	}
	bookmark := ""
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		bookmark = from
	}
	go m.deliver(first, bookmark)
	return m, nil
}

// merged are the events of several clusters.
type merged struct {
	ctx     context.Context
	stop    context.CancelFunc
	leave   *watcher
	sources []watched
	done    []func()
	results chan watch.Event
}

type watched struct {
	source
	events watch.Interface
}

// follow starts the watch of a source.
func (m *merged) follow(o objects, s source, options metav1.ListOptions, version string) error {
	done, err := o.streams.ofCluster.begin(s.cluster)
	if err != nil {
		return err
	}
	m.done = append(m.done, done)
	client, err := o.client(s, true)
	if err != nil {
		return err
	}
	options.ResourceVersion = version
	events, err := client.Watch(m.ctx, options)
	if err != nil {
		return err
	}
	m.sources = append(m.sources, watched{s, events})
	return nil
}

// end releases what the watch has.
func (m *merged) end() {
	m.stop()
	m.leave.remove()
	for _, s := range m.sources {
		s.events.Stop()
	}
	for _, done := range m.done {
		done()
	}
}

// deliver delivers the events until one of the sources ends.
func (m *merged) deliver(first []unstructured.Unstructured, bookmark string) {
	defer close(m.results)
	defer m.end()
	for i := range first {
		if !m.send(watch.Event{Type: watch.Added, Object: &first[i]}) {
			return
		}
	}
	if bookmark != "" {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("v1")
		u.SetKind("Pod")
		u.SetResourceVersion(bookmark)
		u.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		m.send(watch.Event{Type: watch.Bookmark, Object: u})
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	for _, s := range m.sources {
		wait.Go(func() {
			defer m.stop()
			m.pass(s)
		})
	}
	<-m.ctx.Done()
}

// pass passes the events of a source.
func (m *merged) pass(s watched) {
	for {
		select {
		case <-m.ctx.Done():
			return
		case event, ok := <-s.events.ResultChan():
			if !ok {
				return
			}
			switch u, isPod := event.Object.(*unstructured.Unstructured); {
			case event.Type == watch.Bookmark:
				continue
			case event.Type == watch.Error || !isPod:
				status := apierrors.NewResourceExpired("the cluster has ended the watch: list the pods again").Status()
				m.send(watch.Event{Type: watch.Error, Object: &status})
				return
			default:
				shown(u, s.source)
			}
			if !m.send(event) {
				return
			}
		}
	}
}

func (m *merged) send(event watch.Event) bool {
	select {
	case m.results <- event:
		return true
	case <-m.ctx.Done():
		return false
	}
}

// ResultChan implements watch.Interface.
func (m *merged) ResultChan() <-chan watch.Event { return m.results }

// Stop implements watch.Interface.
func (m *merged) Stop() { m.stop() }

// watches are the open watches. It has entries only for workspaces with watches.
type watches struct {
	mu   sync.Mutex // guards open
	open map[string]map[*watcher]struct{}
}

// watcher ends a watch when the sources of its pods are others.
type watcher struct {
	stop   func()
	same   func(context.Context) bool
	remove func()
}

func (w *watches) add(workspace string, stop func(), same func(context.Context) bool) *watcher {
	entry := &watcher{stop: stop, same: same}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[workspace] == nil {
		w.open[workspace] = map[*watcher]struct{}{}
	}
	w.open[workspace][entry] = struct{}{}
	entry.remove = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open[workspace], entry)
		if len(w.open[workspace]) == 0 {
			delete(w.open, workspace)
		}
	}
	return entry
}

// changed ends the watches of a workspace whose sources are others now.
func (w *watches) changed(ctx context.Context, workspace string) {
	w.mu.Lock()
	var all []*watcher
	for entry := range w.open[workspace] {
		all = append(all, entry)
	}
	w.mu.Unlock()
	for _, entry := range all {
		if !entry.same(ctx) {
			entry.stop()
		}
	}
}
