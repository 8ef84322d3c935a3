package storage

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// snapshotBytes limits the approximate memory of the objects of a page; firstObjects and mostObjects limit the objects of the
	// first page and of any page.
	snapshotBytes, firstObjects, mostObjects = 2 << 20, 8, 500
)

// snapshot is a watch of the existing objects. It reads them page by page, the next page when the client has received most of the
// previous one: a watch of etcd would hold all changes in memory while a slow client reads the existing objects.
type snapshot struct {
	storage *clusterStorage
	key     string
	opts    storage.ListOptions
	read    <-chan struct{} // receives a value when the client has received most of the delivered objects
	ctx     context.Context
	cancel  context.CancelFunc
	results chan watch.Event
	// version of the snapshot; read it after results is closed. Zero if the snapshot failed.
	version uint64
}

// ownedKey marks the contexts of lists whose objects belong to the caller.
type ownedKey struct{}

// ResultChan implements watch.Interface.
func (s *snapshot) ResultChan() <-chan watch.Event { return s.results }

// Stop implements watch.Interface.
func (s *snapshot) Stop() { s.cancel() }

func (s *snapshot) run() {
	defer close(s.results)
	version, err := s.list()
	if err == nil && s.opts.SendInitialEvents != nil && s.opts.Predicate.AllowWatchBookmarks {
		err = s.mark(version)
	}
	switch {
	case err == nil:
		s.version = version
	case s.ctx.Err() == nil:
		s.deliver(watch.Event{}, err)
	}
}

// list delivers the objects and returns the version at which they were read.
func (s *snapshot) list() (version uint64, err error) {
	ctx := context.WithValue(s.ctx, ownedKey{}, true)
	opts := s.opts
	opts.SendInitialEvents, opts.ResourceVersionMatch = nil, ""
	if opts.ResourceVersion == "0" {
		opts.ResourceVersion = ""
	}
	if opts.ResourceVersion != "" {
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	for opts.Predicate.Limit = firstObjects; ; {
		list := s.storage.newList()
		if err := s.storage.Interface.GetList(ctx, s.key, opts, list); err != nil {
			return 0, err
		}
		about, err := meta.ListAccessor(list)
		if err != nil {
			return 0, err
		}
		if version == 0 {
			if version, err = (storage.APIObjectVersioner{}).ParseResourceVersion(about.GetResourceVersion()); err != nil {
				return 0, err
			}
		}
		size, n := int64(0), int64(0)
		if err := meta.EachListItem(list, func(object runtime.Object) error {
			size, n = size+s.storage.streams.budget.sizers.sizeOf(object), n+1
			return s.deliver(watch.Event{Type: watch.Added, Object: object}, nil)
		}); err != nil {
			return 0, err
		}
		if opts.Predicate.Continue = about.GetContinue(); opts.Predicate.Continue == "" {
			return version, nil
		}
		if n > 0 {
			opts.Predicate.Limit = max(1, min(snapshotBytes/(size/n), 8*opts.Predicate.Limit, mostObjects))
		}
		opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
		select {
		case <-s.read:
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		}
	}
}

// mark delivers the bookmark that ends the existing objects.
func (s *snapshot) mark(version uint64) error {
	object := s.storage.newFunc()
	if err := (storage.APIObjectVersioner{}).UpdateObject(object, version); err != nil {
		return err
	}
	if err := storage.AnnotateInitialEventsEndBookmark(object); err != nil {
		return err
	}
	return s.deliver(watch.Event{Type: watch.Bookmark, Object: object}, nil)
}

// deliver delivers an event, or an error as an event.
func (s *snapshot) deliver(event watch.Event, err error) error {
	if err != nil {
		event = errorEvent(err)
	}
	select {
	case s.results <- event:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// errorEvent returns the event that ends a watch with an error.
func errorEvent(err error) watch.Event {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	return watch.Event{Type: watch.Error, Object: &status}
}
