package storage

import (
	"context"
	"errors"
	"reflect"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// setsAside reports whether reads of ctx omit unreadable objects.
func (s *clusterStorage) setsAside(ctx context.Context) bool {
	c, _ := logicalcluster.From(ctx)
	return c.Wildcard || s.own
}

// tolerant returns the context for repeating a request that failed with err because of a stored value. It applies to deletions,
// which get a stand-in, and to the server, which does not need some fields.
func (s *clusterStorage) tolerant(ctx context.Context, err error) (context.Context, bool) {
	switch {
	case !IsUnreadable(err):
		return nil, false
	case s.own:
		return withStandIns(ctx, leftOut), true
	}
	return withStandIns(ctx, shown), isDeletion(ctx)
}

// listTolerant lists after an error. It returns an error that does not concern stored values.
func (s *clusterStorage) listTolerant(ctx context.Context, err error, list runtime.Object, read func(context.Context) error) error {
	if !IsUnreadable(err) {
		return err
	}
	pointer, itemsErr := meta.GetItemsPtr(list)
	if itemsErr != nil {
		return errors.Join(err, itemsErr)
	}
	items := reflect.ValueOf(pointer).Elem()
	items.SetZero()
	if !s.setsAside(ctx) {
		return read(withStandIns(ctx, shown))
	}
	if err := read(withStandIns(ctx, leftOut)); err != nil {
		return err
	}
	kept := 0
	for i := range items.Len() {
		if obj, ok := items.Index(i).Addr().Interface().(runtime.Object); ok && isLeftOut(obj) {
			continue
		}
		items.Index(kept).Set(items.Index(i))
		kept++
	}
	items.SetLen(kept)
	return nil
}

// follow watches. A watch that sets aside unreadable objects delivers them as deleted.
func (s *clusterStorage) follow(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if !s.setsAside(ctx) {
		return s.Interface.Watch(ctx, key, opts)
	}
	ctx, stop := context.WithCancel(ctx)
	f := &followed{storage: s, key: key, opts: opts, ctx: ctx, stop: stop, results: make(chan watch.Event, 16)}
	version, ok := after(opts)
	f.version, f.tolerant = version, !ok // the initial objects would be delivered twice
	source, err := f.open()
	if err != nil {
		stop()
		return nil, err
	}
	go f.run(source)
	return f, nil
}

// after returns the version after which a watch starts, unless it starts with the existing objects.
func after(opts storage.ListOptions) (uint64, bool) {
	version, err := strconv.ParseUint(opts.ResourceVersion, 10, 64)
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	return version, err == nil && version > 0 && !initial
}

// followed is a watch that continues after an event that cannot be decoded.
type followed struct {
	storage  *clusterStorage
	key      string
	opts     storage.ListOptions
	ctx      context.Context
	stop     context.CancelFunc
	results  chan watch.Event
	version  uint64 // of the last event
	tolerant bool
}

func (f *followed) open() (watch.Interface, error) {
	ctx, opts := f.ctx, f.opts
	if f.tolerant {
		ctx = withStandIns(ctx, leftOut)
	}
	if f.version > 0 {
		opts.ResourceVersion = strconv.FormatUint(f.version, 10)
	}
	return f.storage.Interface.Watch(ctx, f.key, opts)
}

func (f *followed) run(source watch.Interface) {
	defer close(f.results)
	defer f.stop()
	for {
		again := f.deliver(source)
		source.Stop()
		if !again {
			return
		}
		var err error
		f.tolerant = true
		if source, err = f.open(); err != nil {
			status := apierrors.NewInternalError(err).Status()
			f.send(watch.Event{Type: watch.Error, Object: &status})
			return
		}
	}
}

// deliver delivers events until they end, and reports whether they ended because one cannot be decoded.
func (f *followed) deliver(source watch.Interface) (again bool) {
	for event := range source.ResultChan() {
		if leavesOut(source, event) {
			continue
		}
		if event.Type == watch.Error {
			status, ok := event.Object.(*metav1.Status)
			if again = ok && !f.tolerant && status.Reason == metav1.StatusReasonStoreReadError; again {
				return true
			}
		}
		if f.tolerant && event.Type != watch.Error && isLeftOut(event.Object) {
			event.Type = watch.Deleted
		}
		if !f.send(event) {
			return false
		}
		f.version = max(f.version, versionOf(event))
	}
	return false
}

func (f *followed) send(event watch.Event) bool {
	select {
	case f.results <- event:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// ResultChan implements watch.Interface.
func (f *followed) ResultChan() <-chan watch.Event { return f.results }

// Stop implements watch.Interface.
func (f *followed) Stop() { f.stop() }
