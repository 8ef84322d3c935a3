package apiresourceschema

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// follower is a watch of schemas. Its goroutine ends when the watch of bindings ends, or on Stop, or when the request
// ends.
type follower struct {
	objects
	wanted  selector
	bound   map[string]uses                       // by name of the binding
	shown   map[string]*unstructured.Unstructured // by UID
	changes watch.Interface
	events  chan watch.Event
	stop    chan struct{}
	once    sync.Once
}

// ResultChan implements watch.Interface.
func (f *follower) ResultChan() <-chan watch.Event { return f.events }

// Stop implements watch.Interface.
func (f *follower) Stop() { f.once.Do(func() { close(f.stop) }) }

// run delivers the existing schemas, if the client requests them, and then the changes.
func (f *follower) run(ctx context.Context, initial, marked bool, version string) {
	defer close(f.events)
	defer f.changes.Stop()
	for _, all := range f.bound {
		for uid, b := range all {
			u, err := f.schema(ctx, uid, b.ResourceVersion)
			if err != nil {
				f.fail(ctx, err)
				return
			}
			if f.shown[uid] = u; initial && !f.send(ctx, watch.Added, u) {
				return
			}
		}
	}
	if marked && !f.deliver(ctx,
		watch.Event{Type: watch.Bookmark, Object: bookmark(version, map[string]any{metav1.InitialEventsAnnotationKey: "true"})}) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.stop:
			return
		case e, ok := <-f.changes.ResultChan():
			if !ok || !f.follow(ctx, e) {
				return
			}
		}
	}
}

// follow delivers the events for a change of a binding; false ends the watch.
func (f *follower) follow(ctx context.Context, e watch.Event) bool {
	if e.Type == watch.Error {
		f.deliver(ctx, e)
		return false
	}
	b, ok := e.Object.(*apisv1alpha2.APIBinding)
	if !ok {
		return false
	}
	if e.Type == watch.Bookmark {
		return f.deliver(ctx, watch.Event{Type: watch.Bookmark, Object: bookmark(b.ResourceVersion, nil)})
	}
	before, now := f.bound[b.Name], uses{}
	if e.Type != watch.Deleted {
		now = usesOf(b)
	}
	if f.bound[b.Name] = now; len(now) == 0 {
		delete(f.bound, b.Name)
	}
	for uid := range before {
		if now[uid] != nil {
			continue
		}
		gone := f.shown[uid].DeepCopy()
		if delete(f.shown, uid); gone != nil {
			gone.SetResourceVersion(b.ResourceVersion)
		}
		if !f.send(ctx, watch.Deleted, gone) {
			return false
		}
	}
	for uid := range now {
		if before[uid] != nil {
			continue
		}
		u, err := f.schema(ctx, uid, b.ResourceVersion)
		if err != nil {
			f.fail(ctx, err)
			return false
		}
		if f.shown[uid] = u; !f.send(ctx, watch.Added, u) {
			return false
		}
	}
	return true
}

// send delivers an event for a schema, if the schema exists and the client selects it.
func (f *follower) send(ctx context.Context, kind watch.EventType, u *unstructured.Unstructured) bool {
	if u == nil || !f.wanted.matches(u) {
		return true
	}
	return f.deliver(ctx, watch.Event{Type: kind, Object: u.DeepCopy()})
}

func (f *follower) fail(ctx context.Context, err error) {
	status := apierrors.NewInternalError(err).Status()
	f.deliver(ctx, watch.Event{Type: watch.Error, Object: &status})
}

func (f *follower) deliver(ctx context.Context, e watch.Event) bool {
	select {
	case f.events <- e:
		return true
	case <-ctx.Done():
	case <-f.stop:
	}
	return false
}

func bookmark(version string, annotations map[string]any) runtime.Object {
	metadata := map[string]any{"resourceVersion": version, "creationTimestamp": nil}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apisv1alpha1.SchemeGroupVersion.String(), "kind": "APIResourceSchema", "metadata": metadata,
	}}
}
